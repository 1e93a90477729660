/* Preloaded: the nth write or fsync below a folder fails with an error of the test's choice.
   FAIL_AT is "call:n:errno", e.g. "fsync:2:5"; another text counts anew, and no text fails nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char armed[64];
static int met;

static int strikes(int fd, const char *call) {
    const char *at = getenv("FAIL_AT"), *under = getenv("FAIL_UNDER");
    char wanted[16], link[64], path[4096];
    int nth, error;
    if (!at || !under || sscanf(at, "%15[^:]:%d:%d", wanted, &nth, &error) != 3 || strcmp(call, wanted)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, under, strlen(under))) return 0;
    if (strcmp(armed, at)) {
        snprintf(armed, sizeof armed, "%s", at);
        met = 0;
    }
    if (++met != nth) return 0;
    errno = error;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (strikes(fd, "write")) {
        if (count > 1) real(fd, bytes, count / 2); /* as a disk does that dies half-way */
        errno = atoi(strrchr(getenv("FAIL_AT"), ':') + 1);
        return -1;
    }
    return real(fd, bytes, count);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return strikes(fd, "fsync") ? -1 : real(fd);
}
