import assert from "node:assert/strict";
import { Policy } from "../../src/policy/policy.ts";

/** Compiles a policy with that many rules and measures decisions: half of them match, half match nothing. */
export function decideBenchmark(count: number): { compileMs: number; decideMicroseconds: number } {
  const rules = Array.from(
    { length: count },
    (_, index) => `allow ${index % 2 === 0 ? "*." : ""}host${index}.example${index % 97}.com:443`,
  );
  const start = performance.now();
  const policy = Policy.compile({ mode: "filtered", rules });
  const compileMs = performance.now() - start;
  const names = Array.from({ length: 1000 }, (_, index) => {
    const rule = (index * 7919) % count;
    return index % 2 === 0
      ? `unknown.host${rule}.example.net`
      : `a.b.host${rule - (rule % 2)}.example${(rule - (rule % 2)) % 97}.com`;
  });
  let allowed = 0;
  const rounds = 100;
  const from = performance.now();
  for (let round = 0; round < rounds; round++)
    for (const name of names) if (policy.decide({ protocol: "tcp", port: 443, name }).allowed) allowed++;
  const decideMicroseconds = ((performance.now() - from) * 1000) / (rounds * names.length);
  assert.equal(allowed, (rounds * names.length) / 2);
  return { compileMs, decideMicroseconds };
}
