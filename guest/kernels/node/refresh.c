/* RESEED for the Node kernel: the agent's signal that the machine was forked, also in the middle of an eval, when no JavaScript
   of the kernel can run.

   The handler does two things. It raises a flag in memory that JavaScript sees: the generators that the kernel owns look
   at it before each draw. And it wakes a thread that re-seeds OpenSSL's primary generator, whose children in all threads
   follow before their next output; that is for what draws without the kernel's knowledge, such as TLS. */
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

static void *follow(void *unused) {
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

/* refresh(buffer): fills it with what the system gives and re-seeds OpenSSL with it. False if that could not be done. */
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

/* forked(): starts; an ArrayBuffer of one int32 that is not 0 once the signal has come. Undefined if it cannot be done. */
static napi_value forked(napi_env env, napi_callback_info info) {
    napi_value result, nothing;
    napi_ref kept;
    pthread_t thread;
    sigset_t all, before;
    struct sigaction action;
    void *memory = NULL;
    (void)info;
    napi_get_undefined(env, &nothing);
    /* The memory of an ArrayBuffer stays where it is for as long as the buffer lives: for ever, by the reference. */
    if (flag != NULL || napi_create_arraybuffer(env, sizeof *flag, &memory, &result) != 0 ||
        napi_create_reference(env, result, 1, &kept) != 0 || sem_init(&forks, 0, 0) != 0)
        return nothing;
    sigfillset(&all); /* signals are for the threads of Node */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&thread, NULL, follow, NULL);
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
