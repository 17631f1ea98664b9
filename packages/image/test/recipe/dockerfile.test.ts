import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDockerfile } from "../../src/recipe/dockerfile.ts";

test("parseDockerfile() reads the instructions of the subset with their lines", () => {
  const text = `# syntax
ENV A=1 B="two words" \\
  # a comment between
  C='3'
ENV LEGACY some text

workdir /app
COPY . .
COPY ["a b.txt", "c.txt", "/dst/"]
RUN apt-config dump && \\
    echo "x \\$HOME" > /y
RUN ["/bin/true", "--flag"]
USER app`;
  assert.deepEqual(
    parseDockerfile(text).map(({ line, step }) => [line, step]),
    [
      [2, { env: { A: "1", B: "two words", C: "3" } }],
      [5, { env: { LEGACY: "some text" } }],
      [7, { workdir: "/app" }],
      [8, { copy: { from: ".", to: "." } }],
      [9, { copy: { from: "a b.txt", to: "/dst/" } }],
      [9, { copy: { from: "c.txt", to: "/dst/" } }],
      [10, { run: 'apt-config dump && echo "x \\$HOME" > /y' }],
      [12, { run: ["/bin/true", "--flag"] }],
      [13, { user: "app" }],
    ],
  );
});

const refused: [string, RegExp][] = [
  ["FROM debian:12", /^dockerfile: line 1: FROM: cannot be used here: recipe\.json names the base/],
  ["RUN true\n\nEXPOSE 80", /line 3: EXPOSE: cannot be used here/],
  ["ARG X", /line 1: ARG: cannot be used here: the instructions are RUN, COPY, ENV, WORKDIR, USER/],
  ["HEALTHCHECK NONE", /line 1: HEALTHCHECK/],
  ["COPY --chown=a:b x /y", /line 1: COPY: options are not supported/],
  ["COPY --from=build x /y", /line 1: COPY: options are not supported/],
  ["RUN --mount=type=cache,target=/x true", /line 1: RUN: options are not supported/],
  ["RUN <<EOF\ntrue\nEOF", /line 1: RUN: here-documents are not supported/],
  ["COPY *.py /app/", /line 1: COPY: patterns like "\*\.py" are not supported/],
  ["COPY a b /app", /line 1: COPY: the target of several sources must end with "\/"/],
  ["COPY a", /line 1: COPY: needs a source and a target/],
  ["ENV PATH=/x:$PATH", /line 1: ENV: variables are not replaced: "\/x:\$PATH"/],
  ["WORKDIR $HOME", /line 1: WORKDIR: variables are not replaced/],
  ['ENV A="x', /line 1: ENV: a quotation mark is not closed/],
  ["ENV A", /line 1: ENV: needs NAME=VALUE/],
  ["RUN [1]", /line 1: RUN: must be a list of texts/],
  ["USER", /line 1: USER: needs an argument/],
];

for (const [text, message] of refused) {
  test(`parseDockerfile() refuses ${JSON.stringify(text)} with its line`, () => {
    assert.throws(() => parseDockerfile(text), { message });
  });
}
