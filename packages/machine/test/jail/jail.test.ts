import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { nativeTool } from "@forkd/base";
import { none, root, rootSlirp, userSlirp, type Table } from "./expected.ts";
import {
  isRoot,
  Jailed,
  limitBytes,
  memoryBytes,
  needsRoot,
  Place,
  starter,
  type Variant,
} from "./support.ts";

const maxThreads = 20;
/** users of the root variant */
const ownUid = 200_001;
const otherUid = 200_002;

type Probe = { namespaces: boolean; landlock: boolean; reasons: Record<string, string> };
const { stdout } = await promisify(execFile)(nativeTool("forkd-launch"), ["--probe", "user"]);
const host = JSON.parse(stdout) as Probe;
const needsUserNamespaces = host.namespaces ? false : `no user namespaces: ${host.reasons["namespaces"]}`;
const needsLandlock = host.landlock ? false : `no Landlock: ${host.reasons["landlock"]}`;

type Attack = { rows: Record<string, string | number>; place: Place; connections: number };

/** Runs the probe in place of a VMM, with another machine of the same user and one of another user beside it. */
async function attack(t: TestContext, variant: Variant, net: string, extra: string[] = []): Promise<Attack> {
  const place = await Place.make(t, variant);
  const program = place.program("test-probe");
  let connections = 0;
  const service = createServer((socket) => {
    connections++;
    socket.destroy();
  }).listen(0, "127.0.0.1");
  t.after(() => service.close());
  await once(service, "listening");
  const address = service.address();
  assert.ok(address && typeof address === "object");
  const sleeper = async (uid: number): Promise<number> => {
    const jailed = new Jailed(t, place, { variant, uid, program, args: ["sleep"] });
    assert.equal(await jailed.line(), "ready");
    return jailed.id.pid;
  };
  const twin = await sleeper(ownUid);
  const stranger = variant === "root" ? await sleeper(otherUid) : isRoot ? process.pid : 1;
  const disk = join(place.machine, "disk");
  const memory = openSync(place.memory, "r");
  const jailed = new Jailed(t, place, {
    variant,
    uid: ownUid,
    program,
    // Descriptors 3 and 4 are not kept.
    stdio: ["pipe", "pipe", "pipe", "pipe", "pipe", memory],
    options: [
      ...["--own", disk, "--write", place.machine, "--read", place.memory, "--net", net],
      ...["--listen", `7:${join(place.machine, "agent.sock")}`, "--keep", "5", "--limit-files", "256"],
      ...["--limit-file", String(limitBytes), "--limit-threads", String(maxThreads), ...extra],
    ],
    args: [
      ...["all", `machine=${place.machine}`, `memory=${place.memory}`, "inherited=5", `library=${program}`],
      ...[`stranger=${stranger}`, `twin=${twin}`, `secrets=${place.secrets.join(":")}`],
      ...[`port=${address.port}`, `limit=${limitBytes}`],
    ],
  });
  closeSync(memory);
  const { output, code, errors } = await jailed.result();
  assert.deepEqual({ code, errors }, { code: 0, errors: "" });
  return { rows: JSON.parse(output) as Attack["rows"], place, connections };
}

function checkTable({ rows, place, connections }: Attack, variant: Variant, expected: Table): void {
  const { uid, gid, threads, descriptors, "host name": name, ...rest } = rows;
  assert.deepEqual(rest, expected);
  const user = variant === "root" ? ownUid : starter(variant);
  assert.deepEqual([uid, gid], [user, variant === "root" || isRoot ? user : process.getgid?.()]);
  assert.equal(name, variant === "none" ? hostname() : "forkd");
  // Without its own user, a limit would count everything that the user runs.
  if (variant !== "none") assert.ok(Number(threads) <= maxThreads, `${threads} threads`);
  assert.equal(descriptors, expected === root ? "0,1,2,5,6,7" : "0,1,2,5,7");
  assert.ok(readFileSync(place.memory).equals(Buffer.alloc(memoryBytes, 7)), "the memory is unchanged");
  assert.deepEqual(readdirSync(place.machine).sort(), ["agent.sock", "disk"]);
  assert.equal(connections, 0);
}

test("a VMM with its own user and a tap has nothing but its files", { skip: needsRoot }, async (t) => {
  checkTable(await attack(t, "root", "tap:6"), "root", root);
});

test("a VMM with its own user and slirp reaches only its namespace", { skip: needsRoot }, async (t) => {
  checkTable(await attack(t, "root", "slirp"), "root", rootSlirp);
});

test(
  "a VMM in a user namespace has nothing but its files",
  { skip: needsUserNamespaces || needsLandlock },
  async (t) => {
    checkTable(await attack(t, "user", "slirp"), "user", userSlirp);
  },
);

test("a VMM without namespaces has nothing but its files", { skip: needsLandlock }, async (t) => {
  const missing = ["/dev/kvm", "/dev/net/tun", "/home"].filter((path) => !existsSync(path));
  const rows = missing.map((path) => (path === "/home" ? "list /home" : `open ${path}`));
  checkTable(await attack(t, "none", "off"), "none", { ...none, ...same(rows, "ENOENT") });
});

test("only the filter refuses other processes and other sockets", { skip: needsRoot }, async (t) => {
  const { rows } = await attack(t, "root", "tap:6", ["--no-filter"]);
  const open = [
    "twin: signal",
    "twin: tkill",
    "twin: receive a file's signals",
    "socket: netlink",
    "new process",
  ];
  // These depend on the host.
  if (readFileSync("/proc/net/protocols", "utf8").includes("VSOCK")) open.push("socket: vsock");
  if (!yamaRestricts()) open.push("twin: trace", "twin: read memory");
  assert.deepEqual(Object.fromEntries(open.map((row) => [row, rows[row]])), same(open, "yes"));
  // The user and the root directory still protect the rest.
  const closed = ["stranger: signal", "stranger: trace", "stranger: read memory", "become root", "mount"];
  assert.deepEqual(Object.fromEntries(closed.map((row) => [row, rows[row]])), same(closed, "EPERM"));
});

test("only Landlock keeps a VMM of the same user from adding files", { skip: needsLandlock }, async (t) => {
  const place = await Place.make(t, "none");
  const program = place.program("test-probe");
  const args = ["all", `machine=${place.machine}`, `memory=${place.memory}`, "inherited=0", "stranger=1"];
  const options = ["--write", place.machine, "--read", place.memory];
  const jailed = new Jailed(t, place, {
    variant: "none",
    program,
    options,
    before: [place.program("test-without"), "landlock", "--"],
    args: [
      ...args,
      `twin=${process.pid}`,
      `secrets=${place.secrets.join(":")}`,
      `library=${program}`,
      "limit=9",
    ],
  });
  const { output, code, errors } = await jailed.result();
  assert.deepEqual({ code, errors }, { code: 0, errors: "" });
  const rows = JSON.parse(output) as Attack["rows"];
  const open = [
    "machine: create a symbolic link",
    "machine: rename its disk",
    "list /proc",
    "memory: truncate",
  ];
  assert.deepEqual(Object.fromEntries(open.map((row) => [row, rows[row]])), same(open, "yes"));
  assert.equal(rows["readable secrets"], place.secrets.length);
});

function same(rows: readonly string[], value: string): Record<string, string> {
  return Object.fromEntries(rows.map((row) => [row, value]));
}

function yamaRestricts(): boolean {
  try {
    return readFileSync("/proc/sys/kernel/yama/ptrace_scope", "utf8").trim() !== "0";
  } catch {
    return false;
  }
}

for (const table of process.arch === "x64" ? ["x32", "int80"] : []) {
  test(`the filter ends a VMM that makes ${table} system calls`, async (t) => {
    const place = await Place.make(t, "none");
    const program = place.program("test-probe");
    const start = { variant: "none", program, args: [table] } as const;
    const { output, signal } = await new Jailed(t, place, start).result();
    assert.equal(output, "");
    assert.match(signal ?? "", /SIGSYS|SIGSEGV/);
  });
}
