/** Where a request goes, and what goes with a transfer. */

export type Place = {
  readonly registry: string;
  /** of the repository */
  readonly name: string;
  /** The scopes of a token for this repository. */
  scopes(actions?: "pull" | "pull,push"): string[];
};

export type TransferOptions = {
  readonly signal?: AbortSignal | undefined;
  /** called with the number of bytes as they move; negative for bytes that a lost attempt had sent */
  readonly onBytes?: ((bytes: number) => void) | undefined;
};
