/** The generators inside warm interpreters are re-seeded in each child. */
import type { Language } from "@forkd/contract";
import {
  askAll,
  CannotCheck,
  everyone,
  fail,
  pass,
  shared,
  warn,
  type Hazard,
  type Lab,
  type Subject,
} from "../hazard.ts";

/**
 * Each line is `name value`, the same names in all children. Modules that are not loaded have no state to
 * share, but those of the standard library are drawn from in any case.
 */
const draw: Record<Language, string> = {
  python: `
import os, random, secrets, sys, tempfile, uuid
print('os.urandom', os.urandom(8).hex())
print('random', random.getrandbits(64))
print('secrets', secrets.token_hex(8))
print('uuid4', uuid.uuid4().hex)
print('uuid1', uuid.uuid1().hex)
print('tempfile', tempfile.mktemp())
if 'ssl' in sys.modules:
    print('ssl', sys.modules['ssl'].RAND_bytes(8).hex())
if 'numpy.random' in sys.modules:
    print('numpy.random', sys.modules['numpy.random'].bytes(8).hex())
    print('numpy.default_rng', sys.modules['numpy.random'].default_rng().bytes(8).hex())
`,
  node: `{
  const crypto = require("node:crypto");
  const say = (name, value) => console.log(name + " " + value);
  say("Math.random", [Math.random(), Math.random()].join());
  say("randomBytes", crypto.randomBytes(8).toString("hex"));
  say("randomUUID", crypto.randomUUID());
  say("randomInt", [1, 2, 3, 4].map(() => crypto.randomInt(2 ** 32)).join());
  say("getRandomValues", Buffer.from(crypto.webcrypto.getRandomValues(new Uint8Array(8))).toString("hex"));
}`,
};

/**
 * Counts generators that code of the user made before the snapshot. gc.freeze(), which the warm-up calls, hides
 * objects from gc.get_objects(). It runs before the draws, which make generators too.
 */
const ownGenerators = `
import gc, random, sys
gc.unfreeze()
found = {}
kinds = [random.Random]
if 'numpy.random' in sys.modules:
    kinds += [sys.modules['numpy.random'].Generator, sys.modules['numpy.random'].RandomState]
skip = [id(getattr(random, '_inst', None))]
if 'numpy.random.mtrand' in sys.modules:
    skip.append(id(sys.modules['numpy.random.mtrand']._rand))
for each in gc.get_objects():
    for kind in kinds:
        own = issubclass(type(each), kind) and not issubclass(type(each), random.SystemRandom)
        if own and id(each) not in skip:
            name = kind.__module__ + '.' + kind.__name__
            found[name] = found.get(name, 0) + 1
            break
for name in sorted(found):
    print(name, found[name])
`;

async function compare(
  subjects: readonly Subject[],
  language: Language,
): Promise<{ names: number; both?: string }> {
  const drawn = await askAll(subjects, (subject) => subject.evaluate(language, draw[language]));
  const byName = new Map<string, { name: string; value: string }[]>();
  for (const { name, value } of drawn) {
    for (const line of value.trim().split("\n")) {
      const [what = "", ...rest] = line.split(" ");
      byName.set(what, [...(byName.get(what) ?? []), { name, value: rest.join(" ") }]);
    }
  }
  for (const [what, values] of byName) {
    if (values.length !== subjects.length)
      throw new Error(`${what} of ${language} was drawn in ${values.length} of ${subjects.length} children`);
    const both = shared(values);
    if (both !== undefined)
      return { names: byName.size, both: `${both} drew the same from ${what} of ${language}` };
  }
  return { names: byName.size };
}

/** Commands that the snapshot contains and that forkd cannot re-seed. */
async function otherProcesses({ children }: Lab): Promise<number> {
  const [, second] = children;
  const listed = (await second?.sandbox.agent.list()) ?? [];
  return listed.filter(
    ({ kind, label, finished }) => kind === "command" && !finished && !label.startsWith("kernel:"),
  ).length;
}

async function generatorsOf({ children, snapshot }: Lab): Promise<string> {
  if (!snapshot.manifest.kernels.some(({ language }) => language === "python")) return "";
  const listed = await children[1]?.evaluate("python", ownGenerators);
  return (listed ?? "").trim().split("\n").filter(Boolean).join(", ");
}

export const prng: Hazard = {
  id: "prng",
  title: "Generators of warm interpreters",
  policy: "No generator that a warm interpreter offers repeats in another child.",
  mechanism:
    "The kernels re-seed random, NumPy, uuid, tempfile and OpenSSL (Python), and Math.random and crypto (Node), before a child is handed out, and again by a signal if code runs. If that fails, the fork fails.",
  async check(lab) {
    const languages = lab.snapshot.manifest.kernels.map(({ language }) => language);
    const others = await otherProcesses(lab);
    if (languages.length === 0 && others === 0)
      throw new CannotCheck("no warm interpreter and no service in the snapshot", { absent: true });
    const own = await generatorsOf(lab);
    const checked: string[] = [];
    for (const language of languages) {
      const { names, both } = await compare(everyone(lab), language);
      if (both !== undefined) return fail(both);
      checked.push(`${names} generators of ${language}`);
    }
    const found = [
      ...(own === "" ? [] : [`generators that code made before the snapshot: ${own}`]),
      ...(others === 0 ? [] : [`${others} other running commands, whose generators forkd does not know`]),
    ];
    const what = checked.length === 0 ? "no warm interpreter" : `${checked.join(", ")} differ`;
    if (found.length > 0) {
      return warn(
        `${what}; all children share ${found.join("; ")}`,
        "Make generators in the child, re-seed them in an after-fork callback of the interpreter, or restart the command in each child.",
      );
    }
    const same = languages.includes("python") ? "; the seed of hash() is the same, as after fork(2)" : "";
    return pass(`${what} in ${everyone(lab).length} children${same}`);
  },
};
