/**
 * The part of a manifest that is not about files, for snapshots that a test writes itself. Its type is that of
 * `store`, which this package cannot import; the callers check it.
 */
export function manifestFacts({
  memoryMib,
  created = 1_700_000_000,
}: {
  memoryMib: number;
  created?: number | undefined;
}) {
  return {
    forkd_version: "0.1.0",
    created_at_unix: created,
    origin: { kind: "build" as const },
    agent_protocol: 1,
    engine: { name: "qemu", version: "10.0.2" },
    machine: {
      type: "microvm",
      cpu: "max",
      accelerator: "tcg" as const,
      vcpus: 1,
      memory_mib: memoryMib,
      devices: ["isa-serial"],
      tsc_khz: 2_000_000,
    },
    kernel: { digest: "k", version: "6.12", command_line: "quiet" },
    initramfs: { digest: "i" },
    rootfs: { digest: "r" },
    env: { LANG: "C.UTF-8" },
    kernels: [],
  };
}
