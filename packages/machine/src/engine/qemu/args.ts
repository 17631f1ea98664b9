/**
 * Specs → QEMU's command line. Pure.
 *
 * The guest-visible part (machine, CPU, memory size, devices and their order) is the same for a parent and
 * its children; only back ends differ: memory shared or private, disk files, sockets.
 */
import type { Accelerator } from "@forkd/contract";
import type { NetworkDevice } from "../../jail/facts.ts";
import type { BootSpec, DiskSpec, MachineShape, Netdev, RestoreSpec } from "../engine.ts";

export const machineType = "microvm";
const agentPortName = "forkd.agent";

/** In the order of the command line; recorded in manifests. */
export const devices = [
  "isa-serial",
  "virtio-serial-device",
  `virtserialport:${agentPortName}`,
  "virtio-blk-device",
  "virtio-net-device",
] as const;

/**
 * Every machine has the same address: each is alone on its segment. A child keeps it in any case, because it is
 * part of the device state.
 */
const macAddress = "02:fc:00:00:00:01";

export function cpuModel(accelerator: Accelerator): string {
  // Under TCG, invtsc lets the guest trust the TSC; otherwise it falls back to a periodic tick. Without erms
  // and fsrm the guest avoids rep movsb, which TCG emulates byte by byte.
  return accelerator === "kvm" ? "host,-arch-capabilities,migratable=no,+invtsc" : "max,+invtsc,-erms,-fsrm";
}

export function shapeOf(options: {
  vcpus: number;
  memoryMib: number;
  accelerator: Accelerator;
}): MachineShape {
  return { ...options, machineType, cpu: cpuModel(options.accelerator), devices };
}

/** Kernel arguments; `tscKhz` is the host's TSC frequency. */
export function kernelCommandLine(accelerator: Accelerator, tscKhz: number): string {
  const common = "console=ttyS0 quiet loglevel=3 panic=-1 reboot=t random.trust_cpu=on";
  // The VM is the security boundary, so the guest kernel needs no hardening. Less work in the kernel saves a
  // child CPU time and memory writes, which would end the sharing of pages.
  const lean =
    " mitigations=off audit=0 apparmor=0 lsm= nowatchdog transparent_hugepage=never init_on_alloc=0 kfence.sample_interval=0 psi=0 noautogroup";
  // microvm under TCG has no clock to calibrate the TSC with.
  const clock =
    accelerator === "tcg" ? ` tsc_early_khz=${tscKhz} tsc=reliable clocksource=tsc no_timer_check` : "";
  return common + lean + clock;
}

/** A comma ends an option's value; QEMU reads two of them as one. */
export function escapeComma(path: string): string {
  return path.replaceAll(",", ",,");
}

/** Names in the directory of a machine's sockets. */
export const controlSocket = "qmp.sock";
export const agentSocket = "agent.sock";

/** Descriptors of a VMM. The first daemon is connected to the control socket; a later one connects to its path. */
export const descriptors = {
  control: 3,
  deviceState: 4,
  controlListener: 5,
  agentListener: 6,
  tap: 7,
  /** with which the host tracks the writes of the guest; not in the hands of QEMU itself */
  tracker: 8,
} as const;

/** Name of the nth read-only layer, from the bottom. */
export function baseNode(index: number): string {
  return `base${index}`;
}

/** Name of the nth overlay that a machine writes to. */
export function overlayName(index: number): string {
  return `disk${index}`;
}

/** Name of the file node below a layer, by which QEMU reports the layer's path. */
export function fileNode(layer: string): string {
  return `${layer}-file`;
}

/**
 * A restore is a migration to QEMU, which drops the pages of all disks from the host's cache so that it does not
 * read what another host has changed. Here no other host has, and all children read the same pages.
 */
const keepCache = { "drop-cache": false };

export function overlayNode(name: string, path: string, backing: string | null): Record<string, unknown> {
  return {
    driver: "qcow2",
    "node-name": name,
    // An overlay is needed only while its machine runs; a layer that a snapshot keeps is synced then.
    cache: { direct: false, "no-flush": true },
    discard: "unmap",
    file: {
      driver: "file",
      "node-name": fileNode(name),
      filename: path,
      cache: { direct: false, "no-flush": true },
      ...keepCache,
    },
    backing,
  };
}

function diskArgs(disk: DiskSpec): string[] {
  const args: string[] = [];
  const layers = [...disk.backing].reverse();
  let below: string | undefined;
  layers.forEach((layer, index) => {
    const node = baseNode(index);
    const file = {
      driver: "file",
      "node-name": fileNode(node),
      filename: layer.path,
      "read-only": true,
      ...keepCache,
    };
    args.push(
      "-blockdev",
      JSON.stringify({
        driver: layer.format,
        "node-name": node,
        "read-only": true,
        file,
        ...(layer.format === "qcow2" && { backing: below ?? null }),
      }),
    );
    below = node;
  });
  args.push(
    "-blockdev",
    JSON.stringify(overlayNode(overlayName(0), disk.overlay, below ?? null)),
    "-device",
    // Report a full host disk to the guest as an error; the default would stop the VM silently.
    `virtio-blk-device,drive=${overlayName(0)},werror=report,rerror=report`,
  );
  return args;
}

/** The back end of the network device. The device itself does not depend on it. */
export function netdevArgs(netdev: Netdev): string[] {
  if (netdev.kind === "tap") return ["-netdev", `tap,id=net0,fd=${netdev.fd}`];
  return ["-netdev", netdev.kind === "slirp" ? "user,id=net0,ipv6=off" : "hubport,id=net0,hubid=0"];
}

/** How a machine with this command line is connected. */
export function networkDevice(argv: readonly string[]): NetworkDevice {
  const backend = argv.find(
    (argument, index) => argv[index - 1] === "-netdev" && /\bid=net0\b/.test(argument),
  );
  if (backend?.startsWith("tap,") === true) return "tap";
  return backend?.startsWith("user,") === true ? "slirp" : "none";
}

function networkArgs(netdev: Netdev = { kind: "hubport" }): string[] {
  return [
    ...netdevArgs(netdev),
    "-device",
    // The segment has no switch or neighbour that would have to learn where a restored guest is.
    `virtio-net-device,netdev=net0,mac=${macAddress},guest_announce=off`,
  ];
}

function commonArgs(spec: BootSpec | RestoreSpec, memoryAccess: string): string[] {
  const { shape, place } = spec;
  const accel = shape.accelerator === "kvm" ? "kvm" : "tcg,thread=multi,tb-size=32";
  return [
    ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
    ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
    "-M",
    `${shape.machineType},memory-backend=ram,x-option-roms=off,pit=on,pic=on,rtc=on,suppress-vmdesc=on`,
    ...["-accel", accel],
    ...["-cpu", shape.cpu, "-smp", String(shape.vcpus), "-m", `${shape.memoryMib}M`],
    ...["-global", "migration.send-configuration=off"],
    "-object",
    `memory-backend-file,id=ram,size=${shape.memoryMib}M,mem-path=${escapeComma(spec.memoryFile)},${memoryAccess}`,
    ...["-chardev", `socket,id=qmp,fd=${descriptors.control}`, "-mon", "chardev=qmp,mode=control"],
    // For a later daemon, because the control socket closes when the first daemon exits.
    "-chardev",
    `socket,id=qmp-again,fd=${descriptors.controlListener},server=on,wait=off`,
    ...["-mon", "chardev=qmp-again,mode=control"],
    "-chardev",
    `file,id=console,path=${escapeComma(place.consolePath)},append=on`,
    ...["-serial", "chardev:console"],
    "-chardev",
    `socket,id=agent,fd=${descriptors.agentListener},server=on,wait=off`,
    ...["-device", "virtio-serial-device,max_ports=2"],
    ...["-device", `virtserialport,chardev=agent,name=${agentPortName}`],
    ...diskArgs(spec.disk),
    // After the disk, so that a snapshot without it can be restored: the other devices keep their places.
    ...networkArgs(spec.netdev),
  ];
}

export function bootArgs(spec: BootSpec): string[] {
  return [
    ...commonArgs(spec, "share=on"),
    ...["-kernel", spec.kernel.path, "-initrd", spec.kernel.initramfs, "-append", spec.kernel.commandLine],
  ];
}

/** From this version on QEMU can open a file read-only and map it privately for writing. */
const readOnlySince = [8, 2] as const;

export function opensReadOnly(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > readOnlySince[0] || (major === readOnlySince[0] && minor >= readOnlySince[1]);
}

/** Without -S, the machine runs as soon as the state is loaded. */
export function restoreArgs(spec: RestoreSpec, version: string): string[] {
  const access = opensReadOnly(version) ? "share=off,readonly=on,rom=off" : "share=off";
  // slirp adds a section to the saved state, which only slirp can load: here one that is connected to nothing.
  const isSpareNeeded = spec.spareSlirp === true && spec.netdev?.kind !== "slirp";
  const spare = isSpareNeeded ? ["-netdev", "user,id=spare,restrict=on"] : [];
  return [...commonArgs(spec, access), ...spare, "-incoming", "defer"];
}
