/**
 * Every wait for a guest, a VMM or a daemon has a deadline. Refuses what goes around the places that set one:
 * timers that the garbage collector may take, connections outside the clients, and bare waits for an end. A
 * comment "No deadline: REASON" directly above a line allows it.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";

const root = new URL("..", import.meta.url).pathname;

/** `allowed`: files that set the deadline themselves. */
const rules = [
  {
    pattern: /\bAbortSignal\.timeout\(/,
    problem:
      "AbortSignal.timeout() may be collected before it fires (Node 20). Use deadlineSignal() or timeoutMs of runProgram()",
    allowed: [],
  },
  {
    pattern: /\.eventEver\(/,
    problem: "eventEver() waits as long as the VMM runs. Use event()",
    allowed: ["packages/machine/src/engine/qemu/qmp.ts"],
  },
  {
    pattern: /\b(?:https?\.request|globalThis\.fetch|createConnection)\(|\bconnect\b.*from "node:net"/,
    problem: "Connects without a deadline. Use the SDK, or the clients in machine/",
    allowed: [
      "packages/base/src/unix-socket.ts",
      "packages/machine/src/engine/qemu/driver.ts",
      "packages/sdk/src/node.ts",
      "packages/sdk/src/transport.ts",
    ],
  },
  {
    pattern:
      /\bawait (?!within\(|with\w*Deadline\(|progress\.next\()[\w.#?]*\.(?:exit|exited|ended|died|closed)\b(?![(.])/,
    problem: "Waits for an end that may never come. Use within(), withDeadline() or GuestProgress",
    allowed: [],
  },
];

function* sources(dir) {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (name === "dist" || name === "node_modules" || name === "test") continue;
    if (statSync(path).isDirectory()) yield* sources(path);
    else if (name.endsWith(".ts")) yield path;
  }
}

const problems = [];
for (const path of sources(join(root, "packages"))) {
  const file = relative(root, path);
  const lines = readFileSync(path, "utf8").split("\n");
  for (const [index, line] of lines.entries()) {
    if (/^\s*(?:\*|\/\/|\/\*)/.test(line) || /No deadline: \S/.test(lines[index - 1] ?? "")) continue;
    for (const { pattern, problem, allowed } of rules)
      if (pattern.test(line) && !allowed.includes(file)) problems.push(`${file}:${index + 1}: ${problem}`);
  }
}
for (const problem of problems) console.error(problem);
process.exitCode = problems.length > 0 ? 1 : 0;
