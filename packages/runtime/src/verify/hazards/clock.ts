/** The wall clock of a child is right, its monotonic clock continues, and timers that were pending fire. */
import { within } from "@forkd/base";
import { askAll, CannotCheck, everyone, fail, pass, type Hazard, type Lab, type Subject } from "../hazard.ts";
import { appears, secondsIn } from "../guest-file.ts";

/** an emulated guest on a busy host may answer late */
const toleranceMs = 2000;
const sleepSecs = 4;
/** how late a timer may fire: the branch is written and children start while it runs */
const lateSecs = 120;
const replyMs = 30_000;

function timerFile(scratch: string, which: "began" | "fired"): string {
  return `/run/${scratch}-timer-${which}`;
}

/** How far the clock of the guest is from that of the host; the guest reads it between request and reply. */
async function offsetMs({ sandbox: { agent } }: Subject): Promise<number> {
  const before = Date.now();
  const asked = await within(
    agent.setClock(() => BigInt(Date.now()) * 1_000_000n),
    replyMs,
  );
  const after = Date.now();
  if (asked === undefined) return Number.POSITIVE_INFINITY;
  const guest = Number(asked.guestBeforeNs / 1_000_000n);
  return guest < before ? guest - before : Math.max(0, guest - after);
}

/** Seconds since the boot of the parent, by the monotonic clock. */
async function uptime(subject: Subject): Promise<number> {
  return secondsIn(await subject.read("/proc/uptime"));
}

/** What is wrong with the timer that was started before the branch. */
async function checkTimers(lab: Lab, began: number): Promise<string | undefined> {
  const path = timerFile(lab.scratch, "fired");
  const fired = await askAll([lab.source, ...lab.branched], (each) => appears(each, path, lateSecs * 1000));
  for (const { name, value } of fired) {
    if (value === undefined) return `a timer that was pending at the branch did not fire in ${name}`;
    const secs = secondsIn(value) - began;
    if (!(secs >= sleepSecs - 0.1))
      return `a timer of ${sleepSecs} s fired after ${secs.toFixed(1)} s in ${name}`;
  }
  return undefined;
}

export const clock: Hazard = {
  id: "clock",
  title: "Wall clock, monotonic clock, timers",
  policy:
    "A child has the time of the host. Its monotonic clock never runs backwards, and pending timers fire.",
  mechanism:
    "The agent sets the wall clock before a child is handed out. The monotonic clock continues where the snapshot was taken: the time between is not seen.",
  async prepare(source, { scratch }) {
    const [began, done] = [timerFile(scratch, "began"), timerFile(scratch, "fired")];
    try {
      await source.start([
        "sh",
        "-c",
        `cat /proc/uptime > ${began}; sleep ${sleepSecs}; cat /proc/uptime > ${done}`,
      ]);
      await appears(source, began, replyMs);
    } catch (error) {
      // The clocks can be checked without a shell.
      if (!(error instanceof CannotCheck)) throw error;
    }
  },
  async check(lab) {
    const first = await askAll(everyone(lab), uptime);
    for (const { name, value } of await askAll(everyone(lab), offsetMs)) {
      if (Math.abs(value) > toleranceMs)
        return fail(`the clock of ${name} is ${(value / 1000).toFixed(1)} s from the host's`);
    }
    const text = await lab.source.read(timerFile(lab.scratch, "began"));
    const began = text === undefined ? undefined : secondsIn(text);
    const timers = began === undefined ? undefined : await checkTimers(lab, began);
    if (timers !== undefined) return fail(timers);
    const later = await askAll(everyone(lab), uptime);
    const backwards = later.find(({ value }, at) => !(value >= (first[at]?.value ?? Number.NaN)));
    if (backwards) return fail(`the monotonic clock of ${backwards.name} ran backwards`);
    const behind = first.slice(lab.children.length).find(({ value }) => !(value >= (began ?? 0)));
    if (behind) return fail(`the monotonic clock of ${behind.name} is behind the branch that it came from`);
    const pending =
      began === undefined
        ? "timers not checked: no sh"
        : "a timer that was pending at the branch fired everywhere";
    return pass(
      `clocks of ${first.length} children within ${toleranceMs / 1000} s of the host's; ${pending}`,
    );
  },
};
