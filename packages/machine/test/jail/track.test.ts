/** The descriptor with which the host tracks the writes of a VMM. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { nativeTool, runProgram } from "@forkd/base";
import { isRoot } from "./support.ts";

const canTrack = await runProgram(nativeTool("forkd-pages"), ["tracking"]).then(
  () => true,
  () => false,
);
const skip = canTrack ? false : "this host cannot track writes";
const number = 8;

/** Prints what the descriptors of the program are, and what the environment says about them. */
const script = `
  const { readdirSync, readlinkSync, readFileSync } = require("node:fs");
  const links = {};
  for (const fd of readdirSync("/proc/self/fd")) {
    try { links[fd] = readlinkSync("/proc/self/fd/" + fd); } catch {}
  }
  const info = /^API:.*$/m.exec(readFileSync("/proc/self/fdinfo/${number}", "utf8"));
  console.log(JSON.stringify({ links, info: info?.[0], variable: process.env.FORKD_TRACK ?? null }));`;

type Seen = { links: Record<string, string>; info?: string; variable: string | null };

async function launched(options: readonly string[]): Promise<Seen> {
  const library = ["--env", `LD_PRELOAD=${nativeTool("libforkd-preload.so")}`];
  const { stdout } = await runProgram(nativeTool("forkd-launch"), [
    ...["--variant", "none", "--no-filter", ...library, ...options],
    ...["--", process.execPath, "-e", script],
  ]);
  return JSON.parse(stdout) as Seen;
}

test(
  "the VMM gets a userfaultfd without features that stop threads, and not the device",
  { skip },
  async () => {
    const { links, info, variable } = await launched(["--track", String(number)]);
    assert.equal(links[number], "anon_inode:[userfaultfd]");
    assert.equal(Object.values(links).filter((link) => link.includes("userfault")).length, 1);
    // Write protection that is asynchronous, and its parts.
    assert.match(info ?? "", /^API:\taa:8000a00[01]:/);
    assert.equal(variable, null);
  },
);

test("the launcher refuses the number of another descriptor", async () => {
  const used = ["--listen", "8:/nowhere/socket", "--track", "8"];
  await assert.rejects(launched(used), /descriptor 8 is given twice/);
  await assert.rejects(launched(["--track", "2"]), /descriptors 0 to 2 are always passed on/);
});

test("a VMM starts without the descriptor if the device cannot be opened", { skip: !isRoot }, async () => {
  const options = ["--variant", "none", "--no-filter", "--track", String(number)];
  const list = 'echo "${FORKD_TRACK-none}"; readlink /proc/self/fd/8 || echo closed';
  // An own /dev without the device.
  const { stdout } = await runProgram("unshare", [
    ...["-m", "sh", "-c", 'mount -t tmpfs forkd /dev && exec "$@"', "sh"],
    ...[nativeTool("forkd-launch"), ...options, "--", "/bin/sh", "-c", list],
  ]);
  assert.equal(stdout, "none\nclosed\n");
});
