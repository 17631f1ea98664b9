/** Promises that a test resolves when it wants to. */

export type Gate = { opened: Promise<void>; open: () => void };

export function gate(): Gate {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

/** Resolves after everything that can run now has run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
