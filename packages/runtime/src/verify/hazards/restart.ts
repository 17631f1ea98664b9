/** A daemon that starts again finds the children and can use them. */
import { everyone, fail, pass, type Hazard, type Lab, type Subject } from "../hazard.ts";
import { readRecord } from "../../sandbox/record.ts";

/** What a later daemon would miss. */
async function obstacle({ runtime }: Lab, { name, sandbox }: Subject): Promise<string | undefined> {
  const record = await readRecord(sandbox.home);
  if (!record) return `${name} has no record`;
  const { process } = sandbox.machine;
  const isNamed = record.machine?.pid === process.pid && record.machine.start_time === process.startTime;
  if (!isNamed) return `the record of ${name} does not name its VMM`;
  if (record.machine_id !== sandbox.facts.identity.machineId)
    return `the record of ${name} has another identity`;
  if (!(await runtime.engine.canAttach(sandbox.current.paths))) return `${name} has no sockets to attach to`;
  return undefined;
}

export const restart: Hazard = {
  id: "restart",
  title: "Restart of the daemon",
  policy: "A restarted daemon adopts each child with its identity, limits and time to live.",
  mechanism: "A record that names the VMM and its sockets is committed before a child is handed out.",
  async check(lab) {
    const subjects = everyone(lab);
    const found = await Promise.all(subjects.map((subject) => obstacle(lab, subject)));
    const missing = found.filter((text) => text !== undefined);
    if (missing.length > 0) return fail(missing.join("; "));
    return pass(`${subjects.length} children have a record that names their VMM, and sockets to attach to`);
  },
};
