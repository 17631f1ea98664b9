/**
 * For every test file (node --import): where nothing ends for a long time the test that hangs is named, what the file has started is
 * asked to end, and the file fails. The limit that node:test has itself is for whole files, and names no test.
 */
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { afterEach, beforeEach } from "node:test";

/** Longer than any one test takes on a host that is very slow. */
const patienceSecs = Number(process.env.FORKD_TEST_PATIENCE_SECS ?? 1200);
const farewellMs = 30_000;
/** The real ones: a test may put others in their place. */
const { setTimeout, clearTimeout } = globalThis;

const running = new Set();
let timer;

function childrenOfThis() {
  const text = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim();
  return text === "" ? [] : text.split(" ").map(Number);
}

async function giveUp() {
  const what = running.size === 0 ? "before, between or after the tests" : [...running].join("; ");
  process.stderr.write(
    `Nothing has ended for ${patienceSecs} s, the file is given up. It hangs in: ${what}\n`,
  );
  // A daemon that is asked to end ends its machines.
  for (const pid of childrenOfThis()) process.kill(pid, "SIGTERM");
  for (const late = Date.now() + farewellMs; Date.now() < late && childrenOfThis().length > 0;)
    await wait(100);
  process.exit(1);
}

function rearm() {
  clearTimeout(timer);
  timer = setTimeout(giveUp, patienceSecs * 1000).unref();
}

// Not in the process that starts the files.
if (process.env.NODE_TEST_CONTEXT !== undefined) {
  rearm();
  beforeEach((context) => {
    running.add(context.name);
    rearm();
  });
  afterEach((context) => {
    running.delete(context.name);
    rearm();
  });
}
