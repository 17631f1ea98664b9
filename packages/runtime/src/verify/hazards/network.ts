/** Children have the same addresses, and never meet. */
import { appears } from "../guest-file.ts";
import { programFor, tokenExchange } from "../guest-programs.ts";
import { askAll, fail, pass, type Hazard, type Lab, type Subject } from "../hazard.ts";
import { checkPort, guestAddress, guestBroadcast, requireDevice } from "../network-device.ts";

const waitMs = 180_000;

function tokenFile({ scratch }: Pick<Lab, "scratch">): string {
  return `/run/${scratch}-network`;
}

/** Ends when the child has asked for tokens; it offers its own for some minutes more. */
async function exchange(subject: Subject, lab: Lab): Promise<void> {
  const path = tokenFile(lab);
  const args = [subject.sandbox.id, guestAddress, guestBroadcast, String(checkPort), path];
  await subject.start(await programFor(subject, tokenExchange, args));
  const text = await appears(subject, path, waitMs, (lines) => /^done$/m.test(lines));
  if (text === undefined) throw new Error(`the program in ${subject.name} did not end`);
}

/** The tokens that came to one child. */
async function tokensOf(subject: Subject, lab: Lab): Promise<string[]> {
  const text = (await subject.read(tokenFile(lab))) ?? "";
  return text.split("\n").flatMap((line) => (line.startsWith("got ") ? [line.slice(4)] : []));
}

export const network: Hazard = {
  id: "network",
  title: "MAC and IP addresses",
  policy: "All children have the same addresses by design, and no child reaches another.",
  mechanism: "Each machine has its own network namespace, which leads nowhere.",
  async check(lab) {
    // Two of each kind: an interpreter in every child would load a host that emulates them for a minute.
    const subjects = [...lab.children.slice(0, 2), ...lab.branched.slice(0, 2)];
    const addresses = await askAll(subjects, requireDevice);
    await askAll(subjects, (subject) => exchange(subject, lab));
    // Not before all have asked: the first one to end may have been reached by the last one.
    const received = await askAll(subjects, (subject) => tokensOf(subject, lab));
    const ids = new Map(subjects.map(({ name, sandbox }) => [name, sandbox.id]));
    const met = received.find(({ name, value }) => value.some((token) => token !== ids.get(name)));
    if (met) return fail(`${met.name} received data of another sandbox`);
    const deaf = received.find(({ value }) => value.length === 0);
    if (deaf) return fail(`${deaf.name} does not reach its own address ${guestAddress}`);
    return pass(
      `${subjects.length} children at ${guestAddress} (${addresses[0]?.value ?? ""}) reach only themselves`,
    );
  },
};
