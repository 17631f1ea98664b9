/**
 * Results of evals over HTTP: forms of objects, figures and tables, events in order, contexts, variables, and
 * evals that a branch carried into a child.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { request } from "node:http";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import type { EvalEvent, EvalInfo, EvalResult } from "@forkd/contract";
import { until } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";

let daemon: TestDaemon;
let sandbox: string;
before(async () => {
  daemon = await startDaemon({ snapshots: ["code-interpreter"] });
  sandbox = await forkOne();
});
after(() => daemon[Symbol.asyncDispose]());

/** The wire itself: what every client gets. */
function send(method: string, path: string, body?: object) {
  return new Promise<{ status: number; body: NodeJS.ReadableStream }>((resolve, reject) => {
    const headers = body && { "content-type": "application/json" };
    const outgoing = request({ socketPath: daemon.socket, method, path, headers }, (incoming) =>
      resolve({ status: incoming.statusCode ?? 0, body: incoming }),
    );
    outgoing.on("error", reject);
    outgoing.end(body && JSON.stringify(body));
  });
}

async function call<T>(method: string, path: string, body?: object, status = 200): Promise<T> {
  const answer = await send(method, path, body);
  const content = await text(answer.body as never);
  assert.equal(answer.status, status, content.slice(0, 2000));
  return (content === "" ? undefined : JSON.parse(content)) as T;
}

async function* lines<T>(method: string, path: string, body?: object): AsyncGenerator<T> {
  const answer = await send(method, path, body);
  assert.equal(answer.status, 200);
  for await (const line of createInterface({ input: answer.body })) yield JSON.parse(line) as T;
}

async function forkOne(): Promise<string> {
  const [made] = await call<{ id: string }[]>(
    "POST",
    "/v1/sandboxes",
    { snapshot_tag: "code-interpreter" },
    201,
  );
  assert.ok(made);
  return made.id;
}

function evaluate(code: string, options: object = {}, id = sandbox): Promise<EvalResult> {
  return call("POST", `/v1/sandboxes/${id}/eval`, { code, timeout_secs: 120, ...options });
}

test("a figure is a PNG with the data of its chart, and the value comes before it", async () => {
  const code = "plt.plot([1, 2], [3, 4], label='a')\nplt.title('T')\n'value'";
  const { results, result, execution_count } = await evaluate(code);
  assert.deepEqual(
    results.map((each) => each.is_main_result),
    [true, false],
  );
  assert.deepEqual([result, results[0]?.text, execution_count], ["'value'", "'value'", 1]);
  assert.equal(Buffer.from(results[1]?.png ?? "", "base64").toString("latin1", 1, 4), "PNG");
  const { type, title, elements } = results[1]?.chart ?? {};
  assert.deepEqual(
    [type, title, elements],
    [
      "line",
      "T",
      [
        {
          label: "a",
          points: [
            [1, 3],
            [2, 4],
          ],
        },
      ],
    ],
  );
});

test("tables, images and formulas have their forms", async () => {
  const table = (await evaluate("pd.DataFrame({'a': [1, None], 'b': ['x', 'y']})")).results[0];
  assert.match(table?.html ?? "", /<table/);
  assert.deepEqual([table?.data, table?.is_main_result], [{ a: [1, null], b: ["x", "y"] }, true]);
  const image = (await evaluate("from PIL import Image\nImage.new('RGB', (2, 2))")).results[0];
  assert.match(image?.png ?? "", /^iVBOR/);
  const formula = (await evaluate("import sympy\nsympy.symbols('x') ** 2")).results[0];
  assert.match(formula?.latex ?? "", /x\^\{2\}/);
  const js = await evaluate("display.html('<b>'); display.json([1]); 7", { language: "node" });
  assert.deepEqual(js.results, [
    { is_main_result: false, html: "<b>" },
    { is_main_result: false, json: [1] },
    { is_main_result: true, text: "7" },
  ]);
});

test("a streamed eval has its results as events, in order with its output", async () => {
  const code = "for i in range(3):\n    print('line', i)\n    display(i)\n'end'";
  const seen: string[] = [];
  let last: EvalEvent | undefined;
  for await (const event of lines<EvalEvent>("POST", `/v1/sandboxes/${sandbox}/eval`, {
    code,
    stream: true,
  })) {
    if (event.type === "stdout") seen.push(event.data);
    if (event.type === "display")
      seen.push(`${String(event.display.is_main_result)} ${event.display.text ?? ""}`);
    last = event;
  }
  assert.deepEqual(seen, ["line 0\n", "false 0", "line 1\n", "false 1", "line 2\n", "false 2", "true 'end'"]);
  assert.ok(last?.type === "result");
  assert.deepEqual([last.result.result, last.result.results], ["'end'", []]);
});

test("an error is data: name, value and the frames of the user", async () => {
  const { error_info, error, traceback } = await evaluate(
    "import json\ndef f(x):\n    return json.loads(x)\nf('{')",
  );
  assert.equal(error_info?.name, "JSONDecodeError");
  assert.deepEqual(
    error_info.frames.map(({ line, function: name, text: source }) => [line, name, source]),
    [
      [4, "<module>", "f('{')"],
      [3, "f", "return json.loads(x)"],
    ],
  );
  assert.ok(error?.startsWith("JSONDecodeError: ") && traceback?.includes("json/decoder.py"));
  const js = await evaluate("function g() { null.x }\ng()", { language: "node" });
  assert.equal(js.error_info?.frames.at(-1)?.function, "g");
});

test("what does not fit is named: forms, results", async () => {
  const html = "class H:\n def __init__(self, n): self.n = n\n def _repr_html_(self): return 'x' * self.n\n";
  const large = await evaluate(`${html}H(5_000_000)`);
  assert.deepEqual(large.results[0]?.truncated_parts, ["html"]);
  const many = await evaluate("for i in range(250): display(i)");
  assert.deepEqual([many.results.length, many.results_dropped], [200, 50]);
  assert.deepEqual([many.truncated, many.truncated_parts], [true, ["results"]]);
  const heavy = await evaluate("for i in range(9): display(H(1_000_000))");
  assert.deepEqual([heavy.results.length, heavy.results_dropped], [8, 1]);
});

test("notebook code runs: commands, magics, await", async () => {
  const { stdout, result } = await evaluate("x = 2\n!echo $x; whoami\nlines = !ls -d /home/user\nlines");
  assert.deepEqual([stdout, result], ["2\nroot\n", "['/home/user']"]);
  assert.equal((await evaluate("%%bash\necho $((1 + 1))")).stdout, "2\n");
  assert.match((await evaluate("%pip --version")).stdout, /^pip \d/);
  assert.match(
    (await evaluate("%magic_of_others")).error ?? "",
    /MagicError: there is no magic %magic_of_others/,
  );
  assert.equal((await evaluate("import asyncio\nawait asyncio.sleep(0)\n5")).result, "5");
});

test("a context begins with the warm-up, has its own directory and variables, and can be restarted", async () => {
  const contexts = `/v1/sandboxes/${sandbox}/contexts`;
  const made = await call("POST", contexts, { name: "notes", cwd: "/tmp", env: { A: "1" } }, 201);
  assert.deepEqual(made, { name: "notes", language: "python", cwd: "/tmp" });
  const facts =
    "import os\n[os.getcwd(), os.environ.get('A'), os.environ.get('B'), np.pi > 3, 'mine' in globals()]";
  const read = async (env: object) => (await evaluate(facts, { context: "notes", env })).result_json;
  assert.deepEqual(await read({ B: "2" }), ["/tmp", "1", "2", true, false]);
  await evaluate("mine = 1\nos.chdir('/')", { context: "notes" });
  assert.deepEqual(await read({}), ["/", "1", null, true, true]);
  assert.equal((await evaluate("import os\nos.getcwd()")).result, "'/home/user'");
  assert.deepEqual(await call("POST", `${contexts}/notes/restart`, {}), made);
  assert.deepEqual(await read({}), ["/tmp", "1", null, true, false]);
  const refused = async (body: object, status: number) =>
    (await call<{ code: string }>("POST", contexts, body, status)).code;
  assert.equal(await refused({ name: "notes" }, 409), "already_exists");
  assert.equal(await refused({ name: "lost", cwd: "/no/such" }, 404), "file_not_found");
  assert.equal(await refused({ name: "lost", cwd: "relative" }, 400), "invalid_request");
  const listed = await call<{ name: string; language: string; cwd: string }[]>("GET", contexts);
  assert.deepEqual(
    listed.map(({ name, language, cwd }) => [name, language, cwd]),
    [
      ["default", "python", "/home/user"],
      ["notes", "python", "/tmp"],
      ["default", "node", "/home/user"],
    ],
  );
});

test("an eval that a branch carried into a child can be followed there, to its own end", async () => {
  const source = await forkOne();
  const code = `
import os, time
print('before')
while not os.path.exists('/tmp/go'): time.sleep(0.02)
print('after', open('/tmp/go').read())
display('shown')
plt.plot([1])
6 * 7`;
  const asked = { code, stream: true, timeout_secs: 120 };
  const old = lines<EvalEvent>("POST", `/v1/sandboxes/${source}/eval`, asked);
  const begun = (await old.next()).value as EvalEvent;
  assert.ok(begun.type === "stdout" && begun.data === "before\n");
  const evals = (id: string) => call<EvalInfo[]>("GET", `/v1/sandboxes/${id}/evals`);
  const carried = (await evals(source))[0];
  assert.deepEqual([carried?.state, carried?.followed, carried?.context], ["running", true, "default"]);
  const branched = await call<{ children: { id: string }[] }>(
    "POST",
    `/v1/sandboxes/${source}/branch`,
    { n: 2 },
    201,
  );
  const [first, second] = branched.children.map(({ id }) => id) as [string, string];
  assert.deepEqual(await evals(first), [{ ...carried, followed: false }]);

  const path = `/v1/sandboxes/${first}/evals/${carried?.eval_id ?? ""}/stream`;
  const events: EvalEvent[] = [];
  const reading = (async () => {
    for await (const event of lines<EvalEvent>("GET", path)) events.push(event);
  })();
  await until("the eval is followed", async () => (await evals(first))[0]?.followed === true);
  assert.equal((await call<{ code: string }>("GET", path, undefined, 409)).code, "wrong_state");
  const go = (id: string, word: string) =>
    call("POST", `/v1/sandboxes/${id}/exec`, {
      args: ["sh", "-c", `printf ${word} > /tmp/.go && mv /tmp/.go /tmp/go`],
    });
  await go(first, "first");
  await reading;
  assert.deepEqual(
    events.map((event) =>
      event.type === "stdout"
        ? event.data
        : event.type === "display"
          ? [event.display.text, event.display.is_main_result, event.display.png !== undefined]
          : event.type,
    ),
    [
      "after first\n",
      ["'shown'", false, false],
      ["42", true, false],
      ["<Figure size 640x480 with 1 Axes>", false, true],
      "result",
    ],
  );
  // Its end can be asked for until the next eval has ended. The other child and the source wait for their own.
  assert.deepEqual((await evals(first))[0]?.state, "finished");
  for await (const event of lines<EvalEvent>("GET", path))
    if (event.type === "result") assert.equal(event.result.result, "42");
  assert.equal((await evaluate("os.path.exists('/tmp/go')", {}, first)).result, "True");
  assert.deepEqual(await evals(first), []);
  assert.equal((await call<{ code: string }>("GET", path, undefined, 404)).code, "not_found");
  assert.equal((await evals(second))[0]?.state, "running");
  await go(source, "source");
  const rest: string[] = [];
  for await (const event of old) rest.push(event.type === "stdout" ? event.data : event.type);
  assert.deepEqual(rest, ["after source\n", "display", "display", "display", "result"]);
  // No call follows the second one: what it wrote is kept.
  await go(second, "second");
  await until("the eval has ended", async () => (await evals(second))[0]?.state === "finished");
  const late: string[] = [];
  for await (const event of lines<EvalEvent>("GET", path.replace(first, second)))
    late.push(event.type === "stdout" ? event.data : event.type);
  assert.deepEqual(late, ["after second\n", "display", "display", "display", "result"]);
  for (const id of [source, first, second]) await call("DELETE", `/v1/sandboxes/${id}`, undefined, 204);
});
