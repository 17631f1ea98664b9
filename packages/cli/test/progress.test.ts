import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Progress } from "../src/progress.ts";

function recorder() {
  const written: string[] = [];
  return { written, stream: { write: (text: string) => written.push(text), columns: 20 } };
}

test("Progress stays silent for short work", () => {
  const { written, stream } = recorder();
  using progress = new Progress({ stream, live: false, silent: false }, "Working");
  progress.update("Still");
  assert.deepEqual(written, []);
});

test("Progress writes plain lines where there is no terminal, each message once", () => {
  mock.timers.enable({ apis: ["setInterval"] });
  const now = mock.method(performance, "now", () => 0);
  try {
    const { written, stream } = recorder();
    using progress = new Progress({ stream, live: false, silent: false }, "Working");
    now.mock.mockImplementation(() => 1000);
    mock.timers.tick(1000);
    mock.timers.tick(1000);
    progress.update("Step two");
    assert.deepEqual(written, ["Working\n", "Step two\n"]);
  } finally {
    now.mock.restore();
    mock.timers.reset();
  }
});

test("Progress redraws one line within the width of a terminal and erases it", () => {
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
