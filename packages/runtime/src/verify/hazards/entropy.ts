/** The kernel of each child draws its own random numbers. */
import { askAll, CannotCheck, everyone, fail, pass, shared, type Hazard, type Subject } from "../hazard.ts";

/** Each read draws a new one from the generator of the kernel. Needs no program in the image. */
const path = "/proc/sys/kernel/random/uuid";
const draws = 3;

async function draw(subject: Subject): Promise<string[]> {
  const drawn: string[] = [];
  for (let nth = 0; nth < draws; nth++) {
    const text = (await subject.read(path))?.trim();
    if (text === undefined || text === "") throw new CannotCheck(`no ${path}`);
    drawn.push(text);
  }
  return drawn;
}

export const entropy: Hazard = {
  id: "entropy",
  title: "Random numbers of the kernel",
  policy: "No child draws a random number that another child draws.",
  mechanism:
    "Before a child is handed out, the agent adds 64 bytes of the host's entropy and makes the kernel re-seed. If that fails, the fork fails.",
  async check(lab) {
    const drawn = await askAll(everyone(lab), draw);
    const values = drawn.flatMap(({ name, value }) => value.map((each) => ({ name, value: each })));
    const both = shared(values);
    if (both !== undefined) return fail(`${both} drew the same number from the kernel`);
    return pass(`${values.length} numbers from ${drawn.length} children, all different`);
  },
};
