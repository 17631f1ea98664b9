/** A connection has one owner: it continues in the source, and children start without it. */
import { appears } from "../guest-file.ts";
import { echoPair, programFor } from "../guest-programs.ts";
import { askAll, fail, pass, type Hazard, type Lab, type Subject } from "../hazard.ts";
import { checkPort, guestAddress, requireDevice } from "../network-device.ts";

const waitMs = 120_000;
const port = String(checkPort + 1);

function statusFile(scratch: string): string {
  return `/run/${scratch}-connection`;
}

/** Whether the connection still carries data. */
async function continues(subject: Subject, { scratch }: Lab): Promise<boolean> {
  const path = statusFile(scratch);
  const first = (await subject.read(path)) ?? "";
  if (!first.startsWith("open ")) return false;
  const next = await appears(subject, path, waitMs, (text) => text !== first && text !== "");
  return next?.startsWith("open ") ?? false;
}

export const connections: Hazard = {
  id: "connections",
  title: "Open TCP connections",
  policy: "A connection that was open at a branch is reset in its children and continues in the source.",
  mechanism:
    "The agent aborts all TCP connections of the guest, except on the loopback, before a child is handed out.",
  async prepare(source, { scratch }) {
    await requireDevice(source);
    const path = statusFile(scratch);
    await source.start(await programFor(source, echoPair, [guestAddress, port, path]));
    const begun = await appears(source, path, waitMs);
    if (begun?.startsWith("open ") !== true)
      throw new Error(`the guest cannot connect to its own address ${guestAddress}: ${begun ?? "no answer"}`);
  },
  async check(lab) {
    if (!(await continues(lab.source, lab)))
      return fail("the connection of the source ended with the branch");
    const found = await askAll(lab.branched, (each) =>
      appears(each, statusFile(lab.scratch), waitMs, (text) => text.startsWith("aborted ")),
    );
    const open = found.find(({ value }) => value === undefined);
    if (open) return fail(`${open.name} has a connection that the source has too`);
    return pass(
      `an open connection was reset in ${found.length} children of the branch and continues in the source`,
    );
  },
};
