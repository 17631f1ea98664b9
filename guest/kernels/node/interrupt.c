/*
 * SIGINT for the Node kernel. Node's own mechanism has gaps: vm's breakOnSigint swaps signal handlers around
 * each script (a signal in between kills the process) and covers neither code after an await nor a timer's.
 *
 * Here one permanent handler only posts a semaphore. A thread then acts:
 * - inside guard(f), it makes V8 terminate execution; guard() cancels the termination and returns false;
 * - otherwise it queues a callback on the event loop. If the loop does not run it in time, another callback
 *   blocks the loop and is terminated, too. (Node must run with --no-force-async-hooks-checks, because its
 *   stack of async ids is then inconsistent.)
 * Invariant: termination is requested only with the lock held, and every change of state takes the lock and
 * cancels the request, so that no late request hits other code.
 */
#define _GNU_SOURCE
#include "napi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { RESPONSE_STEPS = 30 }; /* steps of 10 ms within which the event loop must respond */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t signals;
static bool guarded;
static unsigned turn; /* counts the changes of state */
static bool fired;
static void *isolate;
static void (*terminate)(void *);
static void (*cancel)(void *);
static napi_threadsafe_function notify;

static void on_sigint(int number) {
    int saved = errno;
    (void)number;
    sem_post(&signals);
    errno = saved;
}

static void install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_sigint;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
}

/* Changes the state, which cancels an earlier interrupt. True if that had fired. */
static bool enter(bool guard) {
    pthread_mutex_lock(&lock);
    bool was = fired;
    guarded = guard;
    turn++;
    if (fired)
        cancel(isolate);
    fired = false;
    pthread_mutex_unlock(&lock);
    return was;
}

static void *watch(void *unused) {
    const struct timespec step = {0, 10 * 1000 * 1000};
    (void)unused;
    for (;;) {
        while (sem_wait(&signals) != 0)
            ;
        pthread_mutex_lock(&lock);
        unsigned seen = turn;
        if (!guarded) {
            napi_call_threadsafe_function(notify, NULL, 0);
            for (int i = 0; i < RESPONSE_STEPS && turn == seen; i++) {
                pthread_mutex_unlock(&lock);
                nanosleep(&step, NULL);
                pthread_mutex_lock(&lock);
            }
        }
        if (turn == seen) {
            fired = true;
            terminate(isolate);
        }
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Runs on the event loop for an interrupt outside of guard(). */
static void interrupted(napi_env env, napi_value callback, void *context, void *data) {
    napi_value self, result;
    (void)context;
    (void)data;
    if (env == NULL)
        return;
    napi_value stopped;
    napi_get_boolean(env, enter(false), &stopped);
    napi_get_undefined(env, &self);
    napi_call_function(env, self, callback, 1, &stopped, &result);
}

/* guard(f): true if f returned, false if it was interrupted. f does not throw. */
static napi_value guard(napi_env env, napi_callback_info info) {
    napi_value function, self, result;
    size_t count = 1;
    napi_get_cb_info(env, info, &count, &function, NULL, NULL);
    napi_get_undefined(env, &self);
    install(); /* user code may have replaced the handler */
    enter(true);
    int status = napi_call_function(env, self, function, 0, NULL, &result);
    bool stopped = enter(false); /* also if f returned: the inspector swallows a termination */
    if (status != 0)
        napi_get_and_clear_last_exception(env, &result);
    napi_get_boolean(env, !stopped, &result);
    return result;
}

/* again(): acts as if the signal had arrived again. */
static napi_value again(napi_env env, napi_callback_info info) {
    napi_value result;
    (void)info;
    sem_post(&signals);
    napi_get_undefined(env, &result);
    return result;
}

/*
 * watch(f): starts. f(stopped) runs on the event loop for an interrupt outside of guard(); `stopped` is true
 * if a callback was terminated. False if this Node does not support it.
 */
static napi_value start(napi_env env, napi_callback_info info) {
    napi_value argument, name, result;
    size_t count = 1;
    pthread_t thread;
    sigset_t all, before;
    bool done = false;
    void *(*current)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "_ZN2v87Isolate10GetCurrentEv");
    terminate = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZN2v87Isolate18TerminateExecutionEv");
    cancel = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZN2v87Isolate24CancelTerminateExecutionEv");
    napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
    napi_create_string_utf8(env, "forkd", (size_t)-1, &name);
    if (current && terminate && cancel && sem_init(&signals, 0, 0) == 0 &&
        napi_create_threadsafe_function(env, argument, NULL, name, 0, 1, NULL, NULL, NULL, interrupted, &notify) == 0) {
        isolate = current();
        napi_unref_threadsafe_function(env, notify);
        sigfillset(&all); /* only Node's threads may receive signals */
        pthread_sigmask(SIG_BLOCK, &all, &before);
        done = pthread_create(&thread, NULL, watch, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (done)
            install();
    }
    napi_get_boolean(env, done, &result);
    return result;
}

void forkd_interrupt_init(napi_env env, napi_value exports) {
    static const struct {
        const char *name;
        napi_callback function;
    } all[] = {{"guard", guard}, {"again", again}, {"watch", start}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        napi_value function;
        napi_create_function(env, all[i].name, (size_t)-1, all[i].function, NULL, &function);
        napi_set_named_property(env, exports, all[i].name, function);
    }
}
