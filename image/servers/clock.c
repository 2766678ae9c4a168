// Slows QEMU's monotonic clock down by FACTOR; preloaded into the emulator of the outer VM. An instance is
// emulated twice and takes milliseconds for microseconds of work. By the real clock it would spend most of its
// time on 250 timer interrupts a second, and the server's timeouts would expire.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

#define SECOND 1000000000

int clock_gettime(clockid_t clock, struct timespec *time) {
    // Set before there are threads: QEMU reads this clock in a constructor.
    static int (*real)(clockid_t, struct timespec *);
    static int64_t begun;
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, time);
    if (code == 0 && clock == CLOCK_MONOTONIC) {
        int64_t now = (int64_t)time->tv_sec * SECOND + time->tv_nsec;
        if (!begun)
            begun = now;
        int64_t slow = begun + (now - begun) / FACTOR;
        time->tv_sec = slow / SECOND;
        time->tv_nsec = slow % SECOND;
    }
    return code;
}
