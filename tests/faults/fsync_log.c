/* Preloaded into a redis-server: notes how long a file was when an fsync of it began, once that fsync has succeeded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int noted(const char *name, int descriptor)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    struct stat before;
    int known = fstat(descriptor, &before) == 0;
    int result = real(descriptor);
    if (known && result == 0 && S_ISREG(before.st_mode)) {
        char line[64];
        int length = snprintf(line, sizeof line, "%lu %ld\n", (unsigned long)before.st_ino, (long)before.st_size);
        int log = open(getenv("FSYNC_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log < 0 || write(log, line, (size_t)length) != length)
            abort();
        close(log);
    }
    return result;
}

int fdatasync(int descriptor) { return noted("fdatasync", descriptor); }
int fsync(int descriptor) { return noted("fsync", descriptor); }
