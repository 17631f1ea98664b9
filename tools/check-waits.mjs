/**
 * Every wait for a guest, a VMM or a daemon has a deadline. Refuses what goes around the places that set one:
 * timers that the garbage collector may take, connections outside the clients, and bare waits for an end. A
 * comment "No deadline: REASON" directly above the line where a match begins allows it.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";

const root = new URL("..", import.meta.url).pathname;

/** Properties that are promises of an end. */
const end = String.raw`\.(?:exit|exited|ended|died|closed)\b(?!\s*[(.])`;
const value = String.raw`[\w.#?!]*`;

/**
 * `allowed`: files that set the deadline themselves. `caught` and `passed` are examples that every run tries, so
 * that a change of a pattern does not silently open a hole.
 */
const rules = [
  {
    pattern: /\bAbortSignal\s*\.\s*timeout\(/,
    problem:
      "AbortSignal.timeout() may be collected before it fires (Node 20). Use deadlineSignal() or timeoutMs of runProgram()",
    allowed: [],
    caught: ["AbortSignal.timeout(5)", "AbortSignal\n  .timeout(5)"],
    passed: ["AbortSignal.any([a, b])"],
  },
  {
    pattern: /\.eventEver\(/,
    problem: "eventEver() waits as long as the VMM runs. Use event()",
    allowed: ["packages/machine/src/engine/qemu/qmp.ts"],
    caught: ['qmp.eventEver("STOP")'],
    passed: ['qmp.event("STOP")'],
  },
  {
    pattern:
      /\b(?:https?|net|tls)\s*\.\s*(?:request|get|connect)\(|(?<![\w.])fetch\(|\bglobalThis\.fetch\(|\bcreateConnection\(|\b(?:connect|request)\b[^;]*from "node:(?:net|tls|https?)"/,
    problem: "Connects without a deadline. Use the SDK, or the clients in machine/",
    allowed: [
      "packages/base/src/unix-socket.ts",
      "packages/machine/src/engine/qemu/driver.ts",
      "packages/registry/src/http/proxy.ts",
      "packages/registry/src/http/transport.ts",
      "packages/sdk/src/node.ts",
      "packages/sdk/src/node/tunnel.ts",
      "packages/sdk/src/transport.ts",
    ],
    caught: [
      "http.request(options)",
      "https.get(url)",
      "net.connect(path)",
      "await fetch(url)",
      'import {\n  connect,\n} from "node:net"',
    ],
    passed: ["this.#transport.fetch(url)", 'import type net from "node:net"', "function prefetch(url)"],
  },
  {
    pattern: new RegExp(String.raw`\bawait\s+\(?\s*(?!within\b|with\w*Deadline\b|progress\b)${value}${end}`),
    problem: "Waits for an end that may never come. Use within(), withDeadline() or GuestProgress",
    allowed: [],
    caught: [
      "await process.exit;",
      "await this.#closed.promise.closed",
      "await (\n    machine.exited\n  )",
      "await\n  machine.exited",
    ],
    passed: ["await within(process.exited, 5)", "await progress.next(process.exit)", "await program.exit()"],
  },
  {
    pattern: new RegExp(
      String.raw`\bawait\s+Promise\.\w+\(\s*\[[^\]]*?(?<!within\(|Deadline\(|next\()\b${value}${end}`,
    ),
    problem: "Waits for an end that may never come. Give it to within() or withDeadline() first",
    allowed: [],
    caught: [
      "await Promise.all([started, machine.exited])",
      "await Promise.race([\n  child.exited,\n  other,\n])",
    ],
    passed: ["await Promise.all([a, b])"],
  },
  {
    pattern: new RegExp(String.raw`\b(?:const|let)\s+\w+\s*=\s*${value}${end}\s*;`),
    problem: "Names an end, so that a wait for it is not seen here. Wait for the property itself",
    allowed: [],
    caught: ["const gone = machine.exited;"],
    passed: ["const gone = machine.exited.then(report);", "const isClosed = closed;"],
  },
  {
    pattern: /\bawait\s+once\((?![^;]*signal)/,
    problem: "Waits for an event that may never come. Give once() a signal of deadlineSignal()",
    allowed: [],
    caught: ['await once(child, "exit")'],
    passed: ['await once(child, "exit", { signal })'],
  },
  {
    pattern: /\bfor await \([^)]*\bof\s+[\w.]*\.output\)|\bawait\s+[\w.]*output\.next\(\)/,
    problem: "Reads output of a guest that may have fallen silent. Use GuestProgress or whileAnswering()",
    allowed: [],
    caught: ["for await (const { bytes } of process.output) x(bytes);", "const next = await output.next();"],
    passed: ["await progress.next(output.next())"],
  },
];

for (const { pattern, caught, passed } of rules) {
  const missed = caught.filter((text) => !pattern.test(text));
  const refused = passed.filter((text) => pattern.test(text));
  for (const text of [...missed, ...refused]) {
    console.error(`tools/check-waits.mjs: ${pattern} is wrong about ${JSON.stringify(text)}`);
    process.exitCode = 1;
  }
}

function* sources(dir) {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (name === "dist" || name === "node_modules" || name === "test") continue;
    if (statSync(path).isDirectory()) yield* sources(path);
    else if (name.endsWith(".ts")) yield path;
  }
}

/** Comments become spaces, so that positions stay. */
function withoutComments(text) {
  return text.replace(/^\s*\/\*[^]*?\*\/|(?<=^|\s)\/\/.*$/gm, (comment) => comment.replace(/[^\n]/g, " "));
}

function* matchesOf(pattern, text) {
  for (const { index } of text.matchAll(new RegExp(pattern, "g")))
    yield text.slice(0, index).split("\n").length;
}

for (const path of sources(join(root, "packages"))) {
  const file = relative(root, path);
  const text = readFileSync(path, "utf8");
  const lines = text.split("\n");
  const code = withoutComments(text);
  for (const { pattern, problem, allowed } of rules) {
    if (allowed.includes(file)) continue;
    for (const line of matchesOf(pattern, code)) {
      if (/No deadline: \S/.test(lines[line - 2] ?? "")) continue;
      console.error(`${file}:${line}: ${problem}`);
      process.exitCode = 1;
    }
  }
}
