/*
 * Addon of the Node kernel: re-seeds OpenSSL, moves the control descriptor, stops running code (interrupt.c)
 * and detects forks (refresh.c).
 *
 * reseed(buffer) mixes the bytes into OpenSSL's primary generator and makes it poll the system. The
 * generators of all threads detect that and re-seed before their next output. False on failure. moveFd(fd)
 * moves the descriptor to a high number that programs do not inherit; -1 on failure.
 */
#define _GNU_SOURCE
#include "napi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

bool forkd_reseed_openssl(const void *bytes, size_t length) {
    /* Looked up at run time: OpenSSL is in the node binary, in libnode's libcrypto, or absent. */
    void (*add)(const void *, int, double) = (void (*)(const void *, int, double))dlsym(RTLD_DEFAULT, "RAND_add");
    int (*poll)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "RAND_poll");
    if (!add || !poll)
        return false;
    add(bytes, (int)length, (double)length);
    return poll() == 1;
}

static napi_value reseed(napi_env env, napi_callback_info info) {
    napi_value argument, result;
    size_t count = 1, length = 0;
    void *bytes = NULL;
    bool done = napi_get_cb_info(env, info, &count, &argument, NULL, NULL) == 0 && count == 1 &&
                napi_get_buffer_info(env, argument, &bytes, &length) == 0 && length > 0 &&
                forkd_reseed_openssl(bytes, length);
    napi_get_boolean(env, done, &result);
    return result;
}

static napi_value move_fd(napi_env env, napi_callback_info info) {
    static const int lowest[] = {900, 200, 60}; /* several, because the limit of descriptors may be low */
    napi_value argument, result;
    size_t count = 1;
    int32_t fd = -1;
    int moved = -1;
    napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
    if (count == 1 && napi_get_value_int32(env, argument, &fd) == 0)
        for (size_t i = 0; i < sizeof lowest / sizeof *lowest && moved < 0; i++)
            moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest[i]);
    if (moved >= 0)
        close(fd);
    napi_create_int32(env, moved, &result);
    return result;
}

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports) {
    napi_value function;
    napi_create_function(env, "reseed", (size_t)-1, reseed, NULL, &function);
    napi_set_named_property(env, exports, "reseed", function);
    napi_create_function(env, "moveFd", (size_t)-1, move_fd, NULL, &function);
    napi_set_named_property(env, exports, "moveFd", function);
    forkd_interrupt_init(env, exports);
    forkd_refresh_init(env, exports);
    return exports;
}
