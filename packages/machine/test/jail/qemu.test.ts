import assert from "node:assert/strict";
import { once } from "node:events";
import { constants, existsSync, readdirSync, readFileSync, readlinkSync, truncateSync } from "node:fs";
import { Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { until } from "@forkd/test-support";
import { isRoot, Jailed, Place, within, type Variant } from "./support.ts";

const qemu = "/usr/bin/qemu-system-x86_64";
const modules = "/usr/lib/x86_64-linux-gnu/qemu";
const skip = existsSync(qemu) ? false : `${qemu} is not installed`;
const mib = 1024 * 1024;

/** Everything that the program and its accelerator load. */
async function libraries(): Promise<string[]> {
  const accelerator = join(modules, "accel-tcg-x86_64.so");
  const files = existsSync(accelerator) ? [qemu, accelerator] : [qemu];
  const { stdout } = await runProgram("ldd", files, { keep: 100_000 });
  const paths = [...stdout.matchAll(/(?:=> |\t)(\/\S+) \(/g)].map(([, path]) => path ?? "");
  const data = [modules, "/usr/share/qemu", "/usr/share/seabios"].filter((path) => existsSync(path));
  return [...new Set([qemu, ...paths, ...data])];
}

function networkOf(variant: Variant): { option: string; netdev: string } {
  if (variant === "root") return { option: "tap:12", netdev: "tap,id=net0,fd=12" };
  if (variant === "user") return { option: "slirp", netdev: "user,id=net0,ipv6=off" };
  return { option: "off", netdev: "hubport,id=net0,hubid=0" };
}

const variants: readonly Variant[] = isRoot ? ["root", "user", "none"] : ["user", "none"];
for (const variant of variants) {
  test(`QEMU runs in the jail with its sockets, disk and network (${variant})`, { skip }, async (t) => {
    const place = await Place.make(t, variant);
    const { option, netdev } = networkOf(variant);
    truncateSync(place.memory, 64 * mib);
    const disk = join(place.machine, "disk");
    truncateSync(disk, mib);
    const control = join(place.machine, "qmp.sock");
    const preload = place.program("libforkd-preload.so");
    const jailed = new Jailed(t, place, {
      variant,
      program: qemu,
      options: [
        ...(await libraries()).flatMap((path) => ["--read", path]),
        ...["--read", preload, "--read", place.memory, "--write", place.machine, "--own", disk],
        ...["--listen", `10:${control}`, "--listen", `11:${join(place.machine, "agent.sock")}`],
        ...["--net", option, "--limit-files", "1024", "--limit-threads", "64"],
        ...["--env", `LD_PRELOAD=${preload}`, "--env", `FORKD_READ_ONLY=${place.memory}`],
      ],
      args: [
        ...["-nodefaults", "-no-user-config", "-display", "none"],
        ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
        ...["-M", "microvm,memory-backend=ram,x-option-roms=off,pit=on,pic=on,rtc=on"],
        ...["-accel", "tcg,thread=multi,tb-size=32", "-cpu", "max", "-smp", "2", "-m", "64M"],
        ...["-object", `memory-backend-file,id=ram,size=64M,mem-path=${place.memory},share=off`],
        ...["-chardev", "socket,id=qmp,fd=10,server=on,wait=off", "-mon", "chardev=qmp,mode=control"],
        ...["-chardev", "socket,id=agent,fd=11,server=on,wait=off"],
        ...["-device", "virtio-serial-device", "-device", "virtserialport,chardev=agent"],
        ...["-blockdev", `driver=raw,node-name=disk,file.driver=file,file.filename=${disk}`],
        ...["-device", "virtio-blk-device,drive=disk"],
        ...["-netdev", netdev, "-device", "virtio-net-device,netdev=net0"],
      ],
    });
    const ended = jailed.result().then(({ errors }) => errors);
    const answer = await within(Promise.race([stateOf(control), ended]));
    assert.match(answer, /"status": "running"/);
    const { pid } = jailed.id;
    const isMemory = (fd: string): boolean => readlinkSync(`/proc/${pid}/fd/${fd}`) === place.memory;
    const open = readdirSync(`/proc/${pid}/fd`).filter(isMemory);
    assert.equal(open.length, 1);
    const info = readFileSync(`/proc/${pid}/fdinfo/${open[0]}`, "utf8");
    const flags = Number.parseInt(/^flags:\t(\d+)$/m.exec(info)?.[1] ?? "", 8);
    assert.equal(flags & 3, constants.O_RDONLY, "the memory is open for reading only");
  });
}

/** Asks QEMU for its state. */
async function stateOf(path: string): Promise<string> {
  let socket = new Socket();
  // The launcher makes the socket; no event announces it.
  await until("the socket takes connections", async () => {
    socket = new Socket();
    const connection = once(socket, "connect");
    socket.connect(path);
    return connection.then(
      () => true,
      () => false,
    );
  });
  socket.write('{"execute":"qmp_capabilities"}{"execute":"query-status"}');
  let received = "";
  for await (const chunk of socket) {
    received += String(chunk);
    if (received.includes('"status"')) break;
  }
  return received;
}
