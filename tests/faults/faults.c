/* Fails system calls on purpose: loaded into one process of a test by LD_PRELOAD.
 *
 * The file named by FAULTS_CONTROL holds at most one rule, read anew at each call, so that faults come and go:
 *
 *     CALLS PATH ERRNO SKIP TIMES NONCE
 *
 * CALLS is letters: o(pen to write) r(open to read) w(rite) s(ync) n(ame: rename, link) u(nlink) m(kdir) t(runcate).
 * A call whose path contains PATH is let through SKIP times; the next TIMES calls fail with ERRNO (0: all from there
 * on). A rule with another NONCE starts to count anew. Each failed call is a line in the file named by FAULTS_LOG.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static long counted, nonce_seen = -1;

static void note(char call, const char *path)
{
    const char *log = getenv("FAULTS_LOG");
    char line[4200];
    int length, descriptor;
    if (log == NULL)
        return;
    length = snprintf(line, sizeof line, "%c %s\n", call, path);
    descriptor = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (descriptor < 0)
        return;
    (void)!syscall(SYS_write, descriptor, line, (size_t)length);
    syscall(SYS_close, descriptor);
}

/* Whether this call is to fail; errno is then set. */
static int fails(char call, const char *path)
{
    const char *control = getenv("FAULTS_CONTROL");
    char rule[4200], calls[32], wanted[4000];
    long number, skip, times, nonce, length;
    int descriptor, result = 0, before = errno;
    if (control == NULL || path == NULL)
        return 0;
    descriptor = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY);
    if (descriptor < 0) {
        errno = before;
        return 0;
    }
    length = syscall(SYS_read, descriptor, rule, sizeof rule - 1);
    syscall(SYS_close, descriptor);
    errno = before;
    if (length <= 0)
        return 0;
    rule[length] = '\0';
    if (sscanf(rule, "%31s %3999s %ld %ld %ld %ld", calls, wanted, &number, &skip, &times, &nonce) != 6)
        return 0;
    if (strchr(calls, call) == NULL || strstr(path, wanted) == NULL)
        return 0;
    pthread_mutex_lock(&guard);
    if (nonce != nonce_seen) {
        nonce_seen = nonce;
        counted = 0;
    }
    if (counted >= skip && (times == 0 || counted < skip + times)) {
        note(call, path);
        errno = (int)number;
        result = 1;
    }
    counted++;
    pthread_mutex_unlock(&guard);
    return result;
}

static int fails_open_file(char call, int descriptor)
{
    char name[64], path[4000];
    ssize_t length;
    int before = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    length = readlink(name, path, sizeof path - 1);
    errno = before;
    if (length <= 0)
        return 0;
    path[length] = '\0';
    return fails(call, path);
}

static char kind(int flags)
{
    return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) ? 'o' : 'r';
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                        \
    int name(const char *path, int flags, ...)            \
    {                                                     \
        va_list more;                                     \
        mode_t mode;                                      \
        va_start(more, flags);                            \
        mode = (mode_t)va_arg(more, int);                 \
        va_end(more);                                     \
        return fails(kind(flags), path) ? -1 : NEXT(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                      \
    int name(int folder, const char *path, int flags, ...) \
    {                                                     \
        va_list more;                                     \
        mode_t mode;                                      \
        va_start(more, flags);                            \
        mode = (mode_t)va_arg(more, int);                 \
        va_end(more);                                     \
        return fails(kind(flags), path) ? -1 : NEXT(name)(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int descriptor, const void *data, size_t length)
{
    return fails_open_file('w', descriptor) ? -1 : NEXT(write)(descriptor, data, length);
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t at)
{
    return fails_open_file('w', descriptor) ? -1 : NEXT(pwrite)(descriptor, data, length, at);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t at)
{
    return fails_open_file('w', descriptor) ? -1 : NEXT(pwrite64)(descriptor, data, length, at);
}

int fsync(int descriptor)
{
    return fails_open_file('s', descriptor) ? -1 : NEXT(fsync)(descriptor);
}

int fdatasync(int descriptor)
{
    return fails_open_file('s', descriptor) ? -1 : NEXT(fdatasync)(descriptor);
}

int ftruncate(int descriptor, off_t length)
{
    return fails_open_file('t', descriptor) ? -1 : NEXT(ftruncate)(descriptor, length);
}

int ftruncate64(int descriptor, off64_t length)
{
    return fails_open_file('t', descriptor) ? -1 : NEXT(ftruncate64)(descriptor, length);
}

int rename(const char *old, const char *new)
{
    return fails('n', new) ? -1 : NEXT(rename)(old, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned int flags)
{
    return fails('n', new) ? -1 : NEXT(renameat2)(from, old, to, new, flags);
}

int link(const char *old, const char *new)
{
    return fails('n', new) ? -1 : NEXT(link)(old, new);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    return fails('n', new) ? -1 : NEXT(linkat)(from, old, to, new, flags);
}

int unlink(const char *path)
{
    return fails('u', path) ? -1 : NEXT(unlink)(path);
}

int mkdir(const char *path, mode_t mode)
{
    return fails('m', path) ? -1 : NEXT(mkdir)(path, mode);
}
