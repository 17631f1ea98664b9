/** Random input that can be repeated: the seed is printed and can be set. */
export type Random = {
  below: (limit: number) => number;
  pick: <T>(items: readonly T[]) => T;
  bytes: (length: number) => Buffer;
};

export function random(): Random {
  const seed = Number(process.env["FORKD_FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
  process.stderr.write(`FORKD_FUZZ_SEED=${seed}\n`);
  let state = seed >>> 0;
  // xorshift32
  const next = (): number => {
    state = state === 0 ? 1 : state;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
  const below = (limit: number): number => next() % limit;
  return {
    below,
    pick: (items) => items[below(items.length)] as (typeof items)[number],
    bytes: (length) => Buffer.from(Array.from({ length }, () => below(256))),
  };
}
