/** Memory, CPU and disk of a branch are of one moment. */
import { appears, dropCaches } from "../guest-file.ts";
import { askAll, fail, pass, type Hazard, type Lab, type Subject } from "../hazard.ts";

const waitMs = 120_000;
const maxTurns = 20_000;

function places(scratch: string): { memory: string; log: string; stop: string; ended: string } {
  const inMemory = `/run/${scratch}-instant`;
  return {
    memory: inMemory,
    log: `/.${scratch}-instant`,
    stop: `${inMemory}-stop`,
    ended: `${inMemory}-ended`,
  };
}

/**
 * Counts in a variable of the shell (memory), in a file in memory, and in a log on disk that is synced. In a
 * child whose disk is older or newer than its memory the log has a gap, a repetition or another end.
 */
function writer(scratch: string): string {
  const { memory, log, stop, ended } = places(scratch);
  return `i=0
while [ ! -e ${stop} ] && [ $i -lt ${maxTurns} ]; do
  i=$((i+1)); echo $i >> ${log}; sync; echo $i > ${memory}
done
echo $i > ${ended}`;
}

/** What is wrong with the writer of one machine, after it was stopped; otherwise how far it counted. */
async function examine(subject: Subject, { scratch }: Pick<Lab, "scratch">): Promise<number | string> {
  const { memory, log, stop, ended } = places(scratch);
  const startedAt = await subject.read(memory);
  const moved = await appears(subject, memory, waitMs, (text) => Number(text) > Number(startedAt ?? 0));
  if (moved === undefined) return `the writer of ${subject.name} stopped at the branch`;
  await subject.write(stop, "");
  const end = Number(await appears(subject, ended, waitMs));
  // Read from the disk, not from the page cache, which is memory.
  await dropCaches(subject);
  const inMemory = Number(await subject.read(memory));
  // awk and grep are not in every image.
  const script = `n=0; while read line; do n=$((n+1)); [ "$line" = $n ] || { echo "line $n is $line"; exit 0; }; done < ${log}; echo "ok $n"`;
  const found = (await subject.sh(script)).trim();
  if (!found.startsWith("ok "))
    return `the disk of ${subject.name} is of another moment than its memory: ${found}`;
  const onDisk = Number(found.slice(3));
  if (onDisk !== end || inMemory !== end)
    return `${subject.name} counted to ${end} in its variable, ${inMemory} in memory and ${onDisk} on disk`;
  return end;
}

export const instant: Hazard = {
  id: "instant",
  title: "One moment of memory, CPU and disk",
  policy: "A branch of a busy sandbox has memory, CPU state and disk of one moment.",
  mechanism:
    "The guest is stopped while pages, device state and disk are captured. The device state is saved before and after; if it differs, the branch is not made.",
  async prepare(source, { scratch }) {
    await source.start(["sh", "-c", writer(scratch)]);
    const began = await appears(source, places(scratch).memory, waitMs, (text) => Number(text) > 2);
    if (began === undefined) throw new Error("the writer in the child did not begin");
  },
  async check(lab) {
    const found = await askAll([lab.source, ...lab.branched], (each) => examine(each, lab));
    const wrong = found.map(({ value }) => value).filter((value) => typeof value === "string");
    if (wrong.length > 0) return fail(wrong.join("; "));
    return pass(
      `source and ${lab.branched.length} children of the branch count on without a gap, in memory and on disk`,
    );
  },
};
