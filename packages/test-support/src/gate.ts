/** A promise that a test resolves by calling `open()`. */
export type Gate = { opened: Promise<void>; open: () => void };

export function gate(): Gate {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

/** Resolves after all work that can run now has run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
