import assert from "node:assert/strict";
import { test } from "node:test";
import { execRequestSchema } from "../src/exec.ts";
import { execIdSchema, labelsSchema, sandboxIdSchema, tagSchema } from "../src/ids.ts";
import { forkRequestSchema } from "../src/sandboxes.ts";
import { createSnapshotSchema } from "../src/snapshots.ts";
import { assertAccepted, assertRefused } from "./support.ts";

test("tagSchema accepts letters, digits, dots, dashes and underscores, up to 64", () => {
  const accepted = ["a", "7", "py", "python-3.13_slim", "A.B", "a..b", "a.", "a-", "a_", "x".repeat(64)];
  for (const tag of accepted) assertAccepted(tagSchema, tag);
});

test("tagSchema refuses text that could be a path, an option or a hidden name", () => {
  const refused = ["", ".", "..", ".a", "-a", "_a", "a/b", "../a", "a b", "a\n", "a\0", "é", "a:b", "a,b"];
  for (const tag of [...refused, "x".repeat(65)]) assertRefused(tagSchema, tag, "", /must be 1 to 64/);
  for (const tag of [null, undefined, 5, ["a"]]) assertRefused(tagSchema, tag, "");
});

test("sandboxIdSchema and execIdSchema accept only their own form", () => {
  assertAccepted(sandboxIdSchema, `sb-${"0".repeat(24)}`);
  for (const id of [
    "sb-",
    `sb-${"0".repeat(23)}`,
    `sb-${"0".repeat(25)}`,
    `sb-${"A".repeat(24)}`,
    `x${"0".repeat(26)}`,
  ])
    assertRefused(sandboxIdSchema, id, "", /24 hexadecimal digits/);
  assert.equal(execIdSchema.parse("17"), 17);
  for (const id of ["0", "-1", "1.5", "2147483648", "x"]) assertRefused(execIdSchema, id, "");
});

test("labelsSchema limits the number, names and values of labels", () => {
  const many = (n: number) => Object.fromEntries(Array.from({ length: n }, (_, index) => [`k${index}`, ""]));
  assertAccepted(labelsSchema, { "team/job.a-b_c": "any text = fine", empty: "" });
  assertAccepted(labelsSchema, many(32));
  assertRefused(labelsSchema, many(33), "", /at most 32/);
  assertRefused(labelsSchema, { "-x": "" }, "-x");
  assertRefused(labelsSchema, { x: "v".repeat(257) }, "x");
});

test("forkRequestSchema fills in absent fields", () => {
  assert.deepEqual(forkRequestSchema.parse({ snapshot_tag: "py" }), {
    snapshot_tag: "py",
    n: 1,
    labels: {},
    env: {},
    vary: [],
    prewarm: false,
    live_fork: false,
  });
});

test("forkRequestSchema accepts what forkd's clients send", () => {
  const tag = { snapshot_tag: "py" };
  for (const more of [
    { n: 1000 },
    { n: 2, vary: [{ env: { A: "1" }, values: [1, { a: null }] }, {}] },
    { ttl_secs: 60, labels: { job: "1" }, env: { PATH: "/bin", _x9: "" } },
    { prewarm: true, live_fork: true, per_child_netns: false, hugepages: false },
    { per_child_netns: true },
    { network: { mode: "open" }, secrets: ["API_KEY"] },
    { limits: { net_bps: 4096, net_bytes: 4096, net_connections: 1 } },
  ]) {
    assertAccepted(forkRequestSchema, { ...tag, ...more });
  }
});

test("forkRequestSchema names the field that it refuses", () => {
  const tag = { snapshot_tag: "py" };
  const table: [object, string, RegExp?][] = [
    [{}, "snapshot_tag"],
    [{ snapshot_tag: "../py" }, "snapshot_tag", /must be 1 to 64/],
    [{ ...tag, n: 0 }, "n", /must be 1 to 1000/],
    [{ ...tag, n: 1001 }, "n", /must be 1 to 1000/],
    [{ ...tag, n: 1.5 }, "n"],
    [{ ...tag, n: "2" }, "n"],
    [{ ...tag, vary: [{}, {}] }, "vary", /must not have more entries than n/],
    [{ ...tag, vary: [{ other: 1 }] }, "vary.0", /other/],
    [{ ...tag, env: { "A=B": "1" } }, "env.A=B"],
    [{ ...tag, env: { A: "x\0y" } }, "env.A", /NUL/],
    [{ ...tag, env: { A: 1 } }, "env.A"],
    [{ ...tag, ttl_secs: 0 }, "ttl_secs"],
    [{ ...tag, per_child_netns: "yes" }, "per_child_netns"],
    [{ ...tag, network: { mode: "half" } }, "network.mode"],
    [{ ...tag, network: { rules: [""] } }, "network.rules.0"],
    [{ ...tag, network: { allow: [] } }, "network", /allow/],
    [{ ...tag, secrets: ["lower"] }, "secrets.0", /must be 1 to 64 of A-Z/],
    [{ ...tag, limits: { net_bps: 1 } }, "limits.net_bps", /at least 4096 bytes per second/],
    [{ ...tag, limits: { net_connections: 0 } }, "limits.net_connections", /at least 1 connections/],
    [{ ...tag, hugepages: true }, "hugepages", /hugepages is not supported/],
    [{ ...tag, memory_limit_mib: 8 }, "memory_limit_mib", /at least 32 MiB/],
    [{ ...tag, memory_limit_mib: 64, limits: { memory_mib: 65 } }, "memory_limit_mib", /give the limit once/],
    [{ ...tag, limits: { cpu_percent: 0 } }, "limits.cpu_percent", /at least 1 percent of one core/],
    [{ ...tag, limits: { memory: 64 } }, "limits", /memory/],
    [{ ...tag, idle_timeout_secs: 0 }, "idle_timeout_secs"],
    [{ ...tag, on_timeout: "explode" }, "on_timeout"],
    [{ ...tag, surprise: 1 }, "", /surprise/],
  ];
  for (const [value, path, message] of table) assertRefused(forkRequestSchema, value, path, message);
});

test("createSnapshotSchema accepts a recipe or a root file system", () => {
  assert.equal(createSnapshotSchema.parse({ tag: "py", recipe: "/recipes/python" }).force, false);
  assertAccepted(createSnapshotSchema, {
    tag: "own",
    rootfs: "/images/root.ext4",
    kernel: "/images/vmlinuz",
    modules: "/lib/modules/6.12",
    memory_mib: 80,
    vcpus: 64,
    disk_mib: 16,
    env: { A: "1" },
    run: [["apt-get", "update"]],
    languages: { python: {}, node: { warmup: "1" } },
    force: true,
    boot_wait_secs: 600,
    rw: true,
  });
});

test("createSnapshotSchema names the field that it refuses", () => {
  const recipe = { tag: "py", recipe: "/r" };
  const table: [object, string, RegExp?][] = [
    [{ recipe: "/r" }, "tag"],
    [{ tag: "py" }, "recipe", /give one of recipe, image and rootfs/],
    [{ ...recipe, rootfs: "/x" }, "recipe", /give one of recipe, image and rootfs/],
    [{ ...recipe, image: "debian:12" }, "recipe", /give one of recipe, image and rootfs/],
    [{ ...recipe, start: {} }, "start", /is for images/],
    [{ tag: "py", image: "oci:layout" }, "image", /absolute path/],
    [{ tag: "py", image: "app", start: { ready_port: 0 } }, "start.ready_port"],
    [{ tag: "py", recipe: "relative" }, "recipe", /absolute path/],
    [{ tag: "py", rootfs: "" }, "rootfs"],
    [{ ...recipe, kernel: "vmlinuz" }, "kernel", /absolute path/],
    [{ ...recipe, memory_mib: 79 }, "memory_mib"],
    [{ ...recipe, memory_mib: 65537 }, "memory_mib"],
    [{ ...recipe, vcpus: 0 }, "vcpus"],
    [{ ...recipe, disk_mib: 15 }, "disk_mib"],
    [{ ...recipe, run: [[]] }, "run.0"],
    [{ ...recipe, run: ["apt-get update"] }, "run.0"],
    [{ ...recipe, languages: { ruby: {} } }, "languages", /ruby/],
    [{ ...recipe, languages: { python: { warm: "" } } }, "languages.python", /warm/],
    [{ ...recipe, boot_wait_secs: 601 }, "boot_wait_secs"],
    [{ ...recipe, tap: "tap0" }, "tap", /tap is not supported/],
    [{ ...recipe, surprise: 1 }, "", /surprise/],
  ];
  for (const [value, path, message] of table) assertRefused(createSnapshotSchema, value, path, message);
});

test("execRequestSchema fills in absent fields and accepts every field", () => {
  assert.deepEqual(execRequestSchema.parse({ args: ["ls"] }), {
    args: ["ls"],
    env: {},
    stdin_open: false,
    stream: false,
    background: false,
  });
  assert.deepEqual(execRequestSchema.parse({ args: ["sh"], pty: {} }).pty, { rows: 24, cols: 80 });
  assertAccepted(execRequestSchema, {
    args: ["sh", "-c", "", "ünï"],
    env: { A: "" },
    cwd: "/",
    user: "nobody:nogroup",
    timeout_secs: 0,
    stdin: "text\0with NUL",
    stream: true,
    background: true,
  });
});

test("execRequestSchema names the field that it refuses", () => {
  const args = ["ls"];
  const table: [object, string, RegExp?][] = [
    [{}, "args"],
    [{ args: [] }, "args", /must name a program/],
    [{ args: "ls" }, "args"],
    [{ args: ["ls", 1] }, "args.1"],
    [{ args: ["ls", "a\0b"] }, "args.1", /NUL/],
    [{ args, env: { "1A": "" } }, "env.1A"],
    [{ args, cwd: "/\0" }, "cwd", /NUL/],
    [{ args, user: "u".repeat(129) }, "user"],
    [{ args, timeout_secs: -1 }, "timeout_secs"],
    [{ args, timeout_secs: Number.POSITIVE_INFINITY }, "timeout_secs"],
    [{ args, pty: { rows: 0 } }, "pty.rows"],
    [{ args, pty: { cols: 65536 } }, "pty.cols"],
    [{ args, pty: true }, "pty"],
    [{ args, surprise: 1 }, "", /surprise/],
  ];
  for (const [value, path, message] of table) assertRefused(execRequestSchema, value, path, message);
});
