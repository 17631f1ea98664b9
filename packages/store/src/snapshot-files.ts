/** The files that a manifest names. */
import { attachmentRoles, diskName, fileNames, type Manifest } from "./manifest.ts";

export type SnapshotFile = {
  /** in the directory of the snapshot */
  name: string;
  /** what `digest` is: the chunked digest of a file, or the index digest of a layer */
  kind: "file" | "layer";
  bytes: number;
  digest: string;
};

/** From the root file system up: disk layers, memory or layer, device state, attachments. */
export function snapshotFiles({ files }: Pick<Manifest, "files">): SnapshotFile[] {
  const { rootfs, disks, memory, layer, devices } = files;
  const file = (name: string, { bytes, digest }: { bytes: number; digest: string }): SnapshotFile => ({
    name,
    kind: name === fileNames.layer ? "layer" : "file",
    bytes,
    digest,
  });
  return [
    file(fileNames.rootfs, rootfs),
    ...disks.map((disk, index) => file(diskName(index), disk)),
    ...(memory ? [file(fileNames.memory, memory)] : []),
    ...(layer ? [file(fileNames.layer, layer)] : []),
    file(fileNames.devices, devices),
    ...attachmentRoles.flatMap((role) => {
      const attached = files[role];
      return attached ? [file(fileNames[role], attached)] : [];
    }),
  ];
}
