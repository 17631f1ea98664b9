/** The examples in the help texts of the command line. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { repository } from "../places.ts";
import { stepFrom, type Step } from "./blocks.ts";

type Command = {
  name(): string;
  commands: readonly Command[];
  configureOutput(output: { writeOut: (text: string) => void }): Command;
  outputHelp(): void;
};
type Verb = { name: string; hidden?: true };
type Program = { makeProgram: (verb: Verb, toAction: () => () => Promise<void>) => Promise<Command> };

/** Examples that the test does not run, and why */
const notRun: readonly [RegExp, string][] = [
  [/ -it /, "needs a terminal"],
  [/^forkd (build|snapshot --tag) /, "takes minutes; the snapshots of the tests are built this way"],
  [/^forkd service (?!print)/, "changes the services of the host"],
  [/^forkd quickstart/, "starts many machines; docs/reference/cli.md runs it with two"],
  [/^forkd attach /, "needs a running command; docs/reference/cli.md starts one"],
  [/^forkd contexts \w+ --drop/, "needs a context; docs/reference/cli.md makes one"],
  [/^forkd (logs -f|net \w+ log -f|events --(sandbox|type network))/, "the sandbox may print nothing"],
  [/^forkd doctor( --fix)?$/, "boots guests, which takes long; ops.test.ts does it"],
  [/--tls-cert/, "docs/operate/auth.md runs it with a certificate"],
];
/** Examples that do not depend on other examples. */
const isIndependent =
  /^forkd (cleanup|compact|config|doctor|events|gc|images|info|ls|recipes|run|serve|service|top|tree|version)\b/;
/** Verbs that stop or remove what other examples need. */
const last = ["kill", "cleanup", "gc", "up", "down", "serve"];

/** Independent examples that are also among the `known` steps are left out, because those run anyway. */
export async function helpExamples(known: readonly Step[]): Promise<Step[]> {
  const commandOf = (text: string) => text.replace(/\s+#.*/, "");
  const isKnown = new Set(known.map(({ text }) => commandOf(text)));
  const source = (name: string) => pathToFileURL(join(repository, "packages/cli/dist/src", name)).href;
  const { verbs } = (await import(source("verbs.js"))) as { verbs: readonly Verb[] };
  const { makeProgram } = (await import(source("program.js"))) as Program;
  const order = [...verbs].sort((a, b) => last.indexOf(a.name) - last.indexOf(b.name));
  const steps = new Map<string, Step>();
  for (const verb of order.filter(({ hidden }) => !hidden)) {
    const program = await makeProgram(verb, () => async () => {});
    const command = program.commands.find((each) => each.name() === verb.name);
    for (const part of command === undefined ? [] : [command, ...command.commands]) {
      for (const example of examplesOf(part)) {
        if (notRun.some(([pattern]) => pattern.test(example))) continue;
        if (isIndependent.test(example) && isKnown.has(commandOf(example))) continue;
        if (!steps.has(example)) steps.set(example, stepFrom(`help of ${verb.name}`, example));
      }
    }
  }
  return [...steps.values()];
}

function examplesOf(command: Command): string[] {
  let text = "";
  command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
  return [...text.matchAll(/^ {2}\$ (.*)$/gm)].map(([, line = ""]) => line);
}
