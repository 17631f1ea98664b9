import assert from "node:assert/strict";
import { test } from "node:test";
import type { BootSpec, Netdev, RestoreSpec } from "../../../src/engine/engine.ts";
import {
  bootArgs,
  cpuModel,
  devices,
  escapeComma,
  kernelCommandLine,
  netdevArgs,
  networkDevice,
  restoreArgs,
  shapeOf,
} from "../../../src/engine/qemu/args.ts";

const shape = shapeOf({ vcpus: 2, memoryMib: 256, accelerator: "tcg" });
const boot: BootSpec = {
  shape,
  place: { socketDir: "/run/p", consolePath: "/p/console.log", logPath: "/p/vmm.log" },
  memoryFile: "/p/memory",
  disk: { overlay: "/p/disk.qcow2", backing: [{ path: "/p/rootfs.ext4", format: "raw" }] },
  kernel: { path: "/p/vmlinuz", initramfs: "/p/initramfs", commandLine: "console=ttyS0 quiet" },
};
const restore: RestoreSpec = {
  shape,
  place: { socketDir: "/run/c", consolePath: "/c/console.log", logPath: "/c/vmm.log" },
  memoryFile: "/p/memory",
  disk: {
    overlay: "/c/disk.qcow2",
    backing: [
      { path: "/p/disk.qcow2", format: "qcow2" },
      { path: "/p/rootfs.ext4", format: "raw" },
    ],
  },
  deviceState: "/p/devices",
};

/** Values of an option, in order. */
function valuesOf(args: readonly string[], option: string): string[] {
  return args.flatMap((arg, index) => (arg === option ? [args[index + 1] ?? ""] : []));
}

function memoryOf(args: readonly string[]): string {
  return valuesOf(args, "-object").find((value) => value.startsWith("memory-backend-file")) ?? "";
}

test("bootArgs() gives the expected command line for a fixed machine", () => {
  assert.deepEqual(bootArgs(boot), [
    ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
    ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
    ...["-M", "microvm,memory-backend=ram,x-option-roms=off,pit=on,pic=on,rtc=on,suppress-vmdesc=on"],
    ...["-accel", "tcg,thread=multi,tb-size=32"],
    ...["-cpu", "max,+invtsc,-erms,-fsrm", "-smp", "2", "-m", "256M"],
    ...["-global", "migration.send-configuration=off"],
    ...["-object", "memory-backend-file,id=ram,size=256M,mem-path=/p/memory,share=on"],
    ...["-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control"],
    ...["-chardev", "socket,id=qmp-again,fd=5,server=on,wait=off"],
    ...["-mon", "chardev=qmp-again,mode=control"],
    ...["-chardev", "file,id=console,path=/p/console.log,append=on", "-serial", "chardev:console"],
    ...["-chardev", "socket,id=agent,fd=6,server=on,wait=off"],
    ...["-device", "virtio-serial-device,max_ports=2"],
    ...["-device", "virtserialport,chardev=agent,name=forkd.agent"],
    "-blockdev",
    '{"driver":"raw","node-name":"base0","read-only":true,"file":{"driver":"file","node-name":"base0-file","filename":"/p/rootfs.ext4","read-only":true,"drop-cache":false}}',
    "-blockdev",
    '{"driver":"qcow2","node-name":"disk0","cache":{"direct":false,"no-flush":true},"discard":"unmap","file":{"driver":"file","node-name":"disk0-file","filename":"/p/disk.qcow2","cache":{"direct":false,"no-flush":true},"drop-cache":false},"backing":"base0"}',
    ...["-device", "virtio-blk-device,drive=disk0,werror=report,rerror=report"],
    ...["-netdev", "hubport,id=net0,hubid=0"],
    ...["-device", "virtio-net-device,netdev=net0,mac=02:fc:00:00:00:01,guest_announce=off"],
    ...["-kernel", "/p/vmlinuz", "-initrd", "/p/initramfs", "-append", "console=ttyS0 quiet"],
  ]);
});

test("restoreArgs() gives the guest the same hardware as bootArgs(), in the same order", () => {
  const [parent, child] = [bootArgs(boot), restoreArgs(restore, "7.2.0")];
  for (const option of ["-M", "-accel", "-cpu", "-smp", "-m", "-global", "-device", "-serial", "-mon"]) {
    assert.deepEqual(valuesOf(child, option), valuesOf(parent, option), option);
  }
  assert.deepEqual(
    valuesOf(child, "-device").map((value) => value.split(",")[0]),
    ["virtio-serial-device", "virtserialport", "virtio-blk-device", "virtio-net-device"],
  );
  assert.equal(devices.length, valuesOf(child, "-device").length + valuesOf(child, "-serial").length);
});

test("restoreArgs() changes only the back end of the network device", () => {
  const tap = restoreArgs({ ...restore, netdev: { kind: "tap", fd: 7 } }, "7.2.0");
  const slirp = restoreArgs({ ...restore, netdev: { kind: "slirp" } }, "7.2.0");
  assert.deepEqual(valuesOf(tap, "-netdev"), netdevArgs({ kind: "tap", fd: 7 }).slice(1));
  assert.deepEqual(valuesOf(tap, "-netdev"), ["tap,id=net0,fd=7"]);
  assert.deepEqual(valuesOf(slirp, "-netdev"), ["user,id=net0,ipv6=off"]);
  for (const args of [tap, slirp]) {
    assert.deepEqual(valuesOf(args, "-device"), valuesOf(restoreArgs(restore, "7.2.0"), "-device"));
  }
});

test("restoreArgs() adds a slirp that is connected to nothing if the state has one and the machine has not", () => {
  const netdevs = (spec: Partial<RestoreSpec>): string[] =>
    valuesOf(restoreArgs({ ...restore, ...spec }, "7.2.0"), "-netdev");
  const spare = "user,id=spare,restrict=on";
  assert.deepEqual(netdevs({ spareSlirp: true }), ["hubport,id=net0,hubid=0", spare]);
  assert.deepEqual(netdevs({ spareSlirp: true, netdev: { kind: "tap", fd: 5 } }), [
    "tap,id=net0,fd=5",
    spare,
  ]);
  assert.deepEqual(netdevs({ spareSlirp: true, netdev: { kind: "slirp" } }), ["user,id=net0,ipv6=off"]);
});

test("restoreArgs() maps the memory privately, waits for the state and has no kernel", () => {
  const child = restoreArgs(restore, "7.2.0");
  assert.equal(memoryOf(bootArgs(boot)), "memory-backend-file,id=ram,size=256M,mem-path=/p/memory,share=on");
  assert.equal(memoryOf(child), "memory-backend-file,id=ram,size=256M,mem-path=/p/memory,share=off");
  assert.deepEqual(child.slice(-2), ["-incoming", "defer"]);
  assert.equal(child.includes("-kernel"), false);
  assert.equal(child.includes("-S"), false);
});

test("restoreArgs() opens the memory file read-only where QEMU can do that", () => {
  for (const version of ["8.2.0", "8.10", "9.0.1"])
    assert.match(memoryOf(restoreArgs(restore, version)), /,share=off,readonly=on,rom=off$/, version);
  for (const version of ["7.2.22", "8.1.5"])
    assert.match(memoryOf(restoreArgs(restore, version)), /,share=off$/, version);
});

test("restoreArgs() stacks the disk layers from the bottom; only the overlay is writable", () => {
  const nodes = valuesOf(restoreArgs(restore, "7.2.0"), "-blockdev").map((text) => JSON.parse(text));
  assert.deepEqual(
    nodes.map((node) => [node["node-name"], node.driver, node["read-only"] ?? false, node.backing]),
    [
      ["base0", "raw", true, undefined],
      ["base1", "qcow2", true, "base0"],
      ["disk0", "qcow2", false, "base1"],
    ],
  );
  assert.deepEqual(
    nodes.map((node) => node.file.filename),
    ["/p/rootfs.ext4", "/p/disk.qcow2", "/c/disk.qcow2"],
  );
});

test("bootArgs() ignores a backing file in the header of a disk without layers", () => {
  const nodes = valuesOf(bootArgs({ ...boot, disk: { overlay: "/o", backing: [] } }), "-blockdev");
  assert.equal(nodes.length, 1);
  assert.equal(JSON.parse(nodes[0] ?? "").backing, null);
});

test("bootArgs() escapes commas in paths, so that a path cannot add an option", () => {
  assert.equal(escapeComma("/a,b,,c"), "/a,,b,,,,c");
  const args = bootArgs({
    ...boot,
    memoryFile: "/m,share=off",
    place: { socketDir: "/s,wait=on", consolePath: "/c,append=off", logPath: "/l" },
  });
  assert.equal(memoryOf(args), "memory-backend-file,id=ram,size=256M,mem-path=/m,,share=off,share=on");
  assert.deepEqual(valuesOf(args, "-chardev").slice(1), [
    "socket,id=qmp-again,fd=5,server=on,wait=off",
    "file,id=console,path=/c,,append=off,append=on",
    "socket,id=agent,fd=6,server=on,wait=off",
  ]);
});

test("kernelCommandLine() makes the guest trust the TSC only under TCG", () => {
  assert.match(kernelCommandLine("tcg", 2_500_000), / tsc_early_khz=2500000 tsc=reliable/);
  assert.doesNotMatch(kernelCommandLine("kvm", 2_500_000), /tsc/);
  for (const accelerator of ["tcg", "kvm"] as const) {
    assert.match(kernelCommandLine(accelerator, 1), /console=ttyS0 .*panic=-1 reboot=t/);
    assert.match(cpuModel(accelerator), /\+invtsc/);
  }
  assert.equal(valuesOf(bootArgs({ ...boot, shape: { ...shape, accelerator: "kvm" } }), "-accel")[0], "kvm");
});

test("networkDevice() finds how a running machine is connected", () => {
  const of = (netdev: Netdev) => networkDevice(bootArgs({ ...boot, netdev }));
  assert.equal(of({ kind: "tap", fd: 7 }), "tap");
  assert.equal(of({ kind: "slirp" }), "slirp");
  assert.equal(of({ kind: "hubport" }), "none");
  // The stack that only loads its part of the state is not the connection.
  const spare = ["-netdev", "hubport,id=net0,hubid=0", "-netdev", "user,id=spare,restrict=on"];
  assert.equal(networkDevice(spare), "none");
  assert.equal(networkDevice(["qemu", "-nodefaults"]), "none");
});
