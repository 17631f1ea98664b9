/* Declares the parts of Node-API that the addon uses. It needs no headers of Node: the ABI never changes. */
#ifndef FORKD_NAPI_H
#define FORKD_NAPI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef struct napi_threadsafe_function__ *napi_threadsafe_function;
typedef struct napi_ref__ *napi_ref;
typedef int napi_status;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);
typedef void (*napi_finalize)(napi_env, void *, void *);
typedef void (*napi_threadsafe_function_call_js)(napi_env, napi_value, void *, void *);

napi_status napi_get_cb_info(napi_env, napi_callback_info, size_t *argc, napi_value *argv, napi_value *self, void **data);
napi_status napi_get_buffer_info(napi_env, napi_value, void **data, size_t *length);
napi_status napi_create_arraybuffer(napi_env, size_t, void **data, napi_value *);
napi_status napi_create_reference(napi_env, napi_value, uint32_t count, napi_ref *);
napi_status napi_get_boolean(napi_env, bool, napi_value *);
napi_status napi_get_value_int32(napi_env, napi_value, int32_t *);
napi_status napi_create_int32(napi_env, int32_t, napi_value *);
napi_status napi_create_string_utf8(napi_env, const char *, size_t, napi_value *);
napi_status napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
napi_status napi_set_named_property(napi_env, napi_value, const char *, napi_value);
napi_status napi_get_undefined(napi_env, napi_value *);
napi_status napi_call_function(napi_env, napi_value self, napi_value function, size_t, const napi_value *, napi_value *);
napi_status napi_get_and_clear_last_exception(napi_env, napi_value *);
napi_status napi_create_threadsafe_function(napi_env, napi_value function, napi_value resource, napi_value name, size_t queue,
                                            size_t threads, void *finalize_data, napi_finalize, void *context,
                                            napi_threadsafe_function_call_js, napi_threadsafe_function *);
napi_status napi_call_threadsafe_function(napi_threadsafe_function, void *data, int mode);
napi_status napi_unref_threadsafe_function(napi_env, napi_threadsafe_function);

/* reseed.c: mixes the bytes into OpenSSL's primary generator. Safe in any thread. */
bool forkd_reseed_openssl(const void *bytes, size_t length);

/* interrupt.c */
void forkd_interrupt_init(napi_env env, napi_value exports);

/* refresh.c */
void forkd_refresh_init(napi_env env, napi_value exports);
#endif
