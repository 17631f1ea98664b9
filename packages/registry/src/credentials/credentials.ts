/** What a client shows to a registry. */
export type Credentials =
  | { readonly username: string; readonly password: string }
  /** a refresh token, for which the token server gives out tokens */
  | { readonly identityToken: string }
  /** sent as it is */
  | { readonly registryToken: string };

/** The credentials for `HOST[:PORT]`, or undefined to ask anonymously. */
export type FindCredentials = (registry: string, repository?: string) => Promise<Credentials | undefined>;
