import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { mock, test } from "node:test";
import { Output } from "../../src/terminal/output.ts";
import { Progress } from "../../src/terminal/progress.ts";

function recorder() {
  const written: string[] = [];
  return { written, stream: { write: (text: string) => written.push(text), columns: 20 } };
}

test("Progress prints nothing for a short operation", () => {
  const { written, stream } = recorder();
  using progress = new Progress({ stream, live: false, silent: false }, "Working");
  progress.update("Still");
  assert.deepEqual(written, []);
});

test("Progress writes plain lines without a terminal, each message once", () => {
  mock.timers.enable({ apis: ["setInterval"] });
  const now = mock.method(performance, "now", () => 0);
  try {
    const { written, stream } = recorder();
    using progress = new Progress({ stream, live: false, silent: false }, "Working");
    now.mock.mockImplementation(() => 1000);
    mock.timers.tick(1000);
    mock.timers.tick(1000);
    progress.update("Step two");
    progress.update("Copying /root/\u001b[2J");
    assert.deepEqual(written, ["Working\n", "Step two\n", "Copying /root/ [2J\n"]);
  } finally {
    now.mock.restore();
    mock.timers.reset();
  }
});

test("sample() is shown once a second without a terminal", () => {
  mock.timers.enable({ apis: ["setInterval"] });
  const now = mock.method(performance, "now", () => 0);
  try {
    const { written, stream } = recorder();
    using progress = new Progress({ stream, live: false, silent: false }, "Working");
    for (let second = 1; second <= 2; second += 1) {
      for (let count = 0; count < 500; count += 1) progress.sample(`${second * 500 + count} of 1500`);
      now.mock.mockImplementation(() => second * 1000);
      mock.timers.tick(1000);
    }
    assert.deepEqual(written, ["999 of 1500\n", "1499 of 1500\n"]);
  } finally {
    now.mock.restore();
    mock.timers.reset();
  }
});

test("Progress redraws one line within the width of the terminal and erases it", () => {
  mock.timers.enable({ apis: ["setInterval"] });
  const now = mock.method(performance, "now", () => 0);
  try {
    const { written, stream } = recorder();
    {
      using _progress = new Progress({ stream, live: true, silent: false }, "A message that is too long");
      now.mock.mockImplementation(() => 1000);
      mock.timers.tick(200);
    }
    assert.deepEqual(written, ["\r\u001b[2KA message that is t", "\r\u001b[2K"]);
  } finally {
    now.mock.restore();
    mock.timers.reset();
  }
});

test("Output hides progress before it writes a line", () => {
  mock.timers.enable({ apis: ["setInterval"] });
  const now = mock.method(performance, "now", () => 0);
  try {
    const { written, stream } = recorder();
    const terminal = new Writable({
      write: (chunk: Buffer, _encoding, done) => (written.push(chunk.toString()), done()),
    });
    const out = new Output({ json: false, quiet: false, color: false, stdout: terminal, stderr: terminal });
    using progress = new Progress({ stream, live: true, silent: false }, "Stopping");
    out.hideBeforeWriting(progress);
    out.note("early");
    now.mock.mockImplementation(() => 1000);
    mock.timers.tick(200);
    out.note("done");
    out.line("result");
    mock.timers.tick(200);
    const erase = "\r\u001b[2K";
    assert.deepEqual(written, [
      "early\n",
      `${erase}Stopping 1s`,
      erase,
      "done\n",
      "result\n",
      `${erase}Stopping 1s`,
    ]);
  } finally {
    now.mock.restore();
    mock.timers.reset();
  }
});
