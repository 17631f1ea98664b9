/** Numbers that are equal in all children, and names that are made from random numbers. */
import { askAll, CannotCheck, everyone, fail, pass, shared, type Hazard, type Subject } from "../hazard.ts";

const guidance =
  "Do not use a pid, a file descriptor or a start time as a key outside of the guest: use FORKD_SANDBOX_ID.";

async function temporaryName(subject: Subject): Promise<string | undefined> {
  try {
    return (await subject.run(["mktemp", "-u"])).trim();
  } catch (error) {
    if (error instanceof CannotCheck) return undefined;
    throw error;
  }
}

export const pids: Hazard = {
  id: "pids",
  title: "Pids and other ids used as keys",
  policy: "Pids are equal in all children by design. Names of temporary files differ.",
  mechanism:
    "A child continues with the processes of its snapshot. Names of temporary files come from the re-seeded kernel.",
  async check(lab) {
    const subjects = everyone(lab);
    const ids = await askAll(subjects, async ({ sandbox }) => String(sandbox.facts.id));
    if (shared(ids) !== undefined) return fail("two children have the same sandbox id");
    const names = await askAll(subjects, temporaryName);
    const made = names.flatMap(({ name, value }) => (value === undefined ? [] : [{ name, value }]));
    const both = shared(made);
    if (both !== undefined) return fail(`${both} made the same name of a temporary file`);
    const temporary = made.length === 0 ? "temporary names not checked: no mktemp" : "temporary names differ";
    return pass(`pids are equal by design; ${temporary}`, guidance);
  },
};
