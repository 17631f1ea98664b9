/** Detects the kind of a file by its content (pure). */

export type FileKind =
  | "empty"
  | "ext4"
  | "tar"
  | "gzip"
  | "xz"
  | "zstd"
  | "bzimage"
  | "elf"
  | "qcow2"
  | "iso"
  | "squashfs"
  | "xfs"
  | "btrfs"
  | "vmdk"
  | "vhdx"
  | "vdi"
  | "zip"
  | "bzip2"
  | "cpio"
  | "arm64-kernel"
  | "disk"
  | "unknown";

/** The name of each kind in messages. */
export const kindNames: Readonly<Record<FileKind, string>> = {
  empty: "an empty file",
  ext4: "an ext4 image",
  tar: "a tar archive",
  gzip: "a gzip file",
  xz: "an xz file",
  zstd: "a zstd file",
  bzimage: "a Linux kernel (bzImage)",
  elf: "an ELF program",
  qcow2: "a qcow2 disk",
  iso: "an ISO image",
  squashfs: "a squashfs image",
  xfs: "an XFS image",
  btrfs: "a btrfs image",
  vmdk: "a VMDK disk",
  vhdx: "a VHDX disk",
  vdi: "a VDI disk",
  zip: "a zip archive",
  bzip2: "a bzip2 file",
  cpio: "a cpio archive",
  "arm64-kernel": "a kernel for arm64",
  disk: "a disk with a partition table",
  unknown: "a file of an unknown kind",
};

/** Bytes at the beginning of a file that identify() reads. */
export const headBytes = 68 * 1024;

type Magic = {
  kind: FileKind;
  at: number;
  /** as latin1 */
  bytes: string;
};

const magics: readonly Magic[] = [
  { kind: "qcow2", at: 0, bytes: "QFI\xfb" },
  { kind: "elf", at: 0, bytes: "\x7fELF" },
  { kind: "gzip", at: 0, bytes: "\x1f\x8b" },
  { kind: "xz", at: 0, bytes: "\xfd7zXZ\0" },
  { kind: "zstd", at: 0, bytes: "\x28\xb5\x2f\xfd" },
  { kind: "squashfs", at: 0, bytes: "hsqs" },
  { kind: "xfs", at: 0, bytes: "XFSB" },
  { kind: "vmdk", at: 0, bytes: "KDMV" },
  { kind: "vhdx", at: 0, bytes: "vhdxfile" },
  { kind: "vdi", at: 64, bytes: "\x7f\x10\xda\xbe" },
  { kind: "zip", at: 0, bytes: "PK\x03\x04" },
  { kind: "bzip2", at: 0, bytes: "BZh" },
  { kind: "cpio", at: 0, bytes: "07070" },
  { kind: "arm64-kernel", at: 56, bytes: "ARMd" },
  { kind: "bzimage", at: 0x202, bytes: "HdrS" },
  { kind: "tar", at: 257, bytes: "ustar" },
  { kind: "ext4", at: 1080, bytes: "\x53\xef" },
  { kind: "iso", at: 32_769, bytes: "CD001" },
  { kind: "btrfs", at: 65_600, bytes: "_BHRfS_M" },
  { kind: "disk", at: 510, bytes: "\x55\xaa" },
];

/** The kind of the file that begins with `head`. */
export function identify(head: Uint8Array): FileKind {
  if (head.length === 0) return "empty";
  const text = Buffer.from(head.buffer, head.byteOffset, head.length).toString("latin1");
  return magics.find(({ at, bytes }) => text.startsWith(bytes, at))?.kind ?? "unknown";
}

/** The size of a file system according to its superblock (at byte 1024). */
export function readExt4SizeBytes(head: Uint8Array): number {
  const view = new DataView(head.buffer, head.byteOffset + 1024, 1024);
  const has64Bit = (view.getUint32(0x60, true) & 0x80) !== 0;
  const blocks = view.getUint32(4, true) + (has64Bit ? view.getUint32(0x150, true) * 2 ** 32 : 0);
  return blocks * 1024 * 2 ** view.getUint32(0x18, true);
}
