/*
 * RESEED for the Node kernel: the agent's signal after a fork, also during an eval, when no JavaScript of the
 * kernel can run.
 *
 * The handler does two things. It sets a flag in memory that JavaScript reads: the kernel's own generators
 * check it before each draw. And it wakes a thread that re-seeds OpenSSL's primary generator; the generators
 * of all threads re-seed from it before their next output. This covers code that draws outside the kernel,
 * such as TLS.
 */
#define _GNU_SOURCE
#include "napi.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

enum { RESEED = 41, FRESH = 64 };

static int32_t *flag;
static sem_t forks;

static void on_reseed(int number) {
    int saved = errno;
    (void)number;
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    sem_post(&forks);
    errno = saved;
}

static void *reseed_on_fork(void *unused) {
    uint8_t bytes[FRESH];
    (void)unused;
    for (;;) {
        while (sem_wait(&forks) != 0)
            ;
        if (getrandom(bytes, sizeof bytes, 0) == sizeof bytes)
            forkd_reseed_openssl(bytes, sizeof bytes);
        explicit_bzero(bytes, sizeof bytes);
    }
    return NULL;
}

/* refresh(buffer): fills it with entropy of the system and re-seeds OpenSSL with it. False on failure. */
static napi_value refresh(napi_env env, napi_callback_info info) {
    napi_value argument, result;
    size_t count = 1, length = 0;
    void *bytes = NULL;
    bool done = napi_get_cb_info(env, info, &count, &argument, NULL, NULL) == 0 && count == 1 &&
                napi_get_buffer_info(env, argument, &bytes, &length) == 0 && length > 0 && length <= 256 &&
                getrandom(bytes, length, 0) == (ssize_t)length && forkd_reseed_openssl(bytes, length);
    napi_get_boolean(env, done, &result);
    return result;
}

/* forked(): starts; returns an ArrayBuffer of one int32 that the signal sets to 1. Undefined on failure. */
static napi_value forked(napi_env env, napi_callback_info info) {
    napi_value result, nothing;
    napi_ref kept;
    pthread_t thread;
    sigset_t all, before;
    struct sigaction action;
    void *memory = NULL;
    (void)info;
    napi_get_undefined(env, &nothing);
    /* The reference keeps the ArrayBuffer, and so its memory stays at the same address. */
    if (flag != NULL || napi_create_arraybuffer(env, sizeof *flag, &memory, &result) != 0 ||
        napi_create_reference(env, result, 1, &kept) != 0 || sem_init(&forks, 0, 0) != 0)
        return nothing;
    sigfillset(&all); /* only Node's threads may receive signals */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&thread, NULL, reseed_on_fork, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return nothing;
    flag = memory;
    *flag = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_reseed;
    action.sa_flags = SA_RESTART;
    sigaction(RESEED, &action, NULL);
    return result;
}

void forkd_refresh_init(napi_env env, napi_value exports) {
    napi_value function;
    napi_create_function(env, "refresh", (size_t)-1, refresh, NULL, &function);
    napi_set_named_property(env, exports, "refresh", function);
    napi_create_function(env, "forked", (size_t)-1, forked, NULL, &function);
    napi_set_named_property(env, exports, "forked", function);
}
