/* A libnvidia-ml.so.1 for hosts without a GPU: the real symbols that nvidia-ml-py resolves, scripted by a file.
 *
 * The file is $SIDEBAND_FAKE_NVML, else /run/fake_nvml.conf. It is read again whenever it changes, so a test or a
 * drill changes a GPU's state while the programs under test run. A line is one of
 *
 *   # anything                        a comment
 *   driver 570.86                     the driver's version
 *   device /tmp/nvidia0               opened by nvmlInit, closed by nvmlShutdown, as /dev/nvidia* are (case 46)
 *   keep                              nvmlShutdown leaves the device open, and exec does
 *   log /tmp/calls                    one line for each call: seconds, name, GPU (to count tries)
 *   all WHAT [until EPOCH]            what every call, nvmlInit too, answers (case 41)
 *   init WHAT [until EPOCH]           what nvmlInit answers
 *   gpu N FIELD WHAT [until EPOCH]    what GPU N answers for a field
 *   gpu N uuid|name|pci TEXT          who it is; GPUs are counted by their numbers, from 0
 *   gpu N processes [PID ...]         who computes on it
 *
 * FIELD is one of the names in FIELDS in script.h, or `any` for all of a GPU's fields. WHAT is a number, an error's name
 * from ERRORS in script.h, or hang:SECONDS, which sleeps and then answers 0. The last line that fits holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "script.h"

#define API __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users, device_handle = -1;

static void note(const char *name, int gpu) {
    if (!*now.log) return;
    FILE *file = fopen(now.log, "ae");
    if (file == NULL) return;
    fprintf(file, "%.3f %s %d\n", seconds(), name, gpu);
    fclose(file);
}

/* Sleep outside the lock: one call that hangs must not be all calls that hang, unless the script says so. */
static result answer(struct what what, unsigned long long *value) {
    if (what.hang > 0) {
        struct timespec time = {(time_t)what.hang, (long)((what.hang - (double)(time_t)what.hang) * 1e9)};
        while (nanosleep(&time, &time) != 0 && errno == EINTR) {}
    }
    if (value != NULL) *value = what.value;
    return what.code;
}

static result general(const char *name, int is_init) {
    struct what what = {SUCCESS, 0, 0, 0, 1};
    pthread_mutex_lock(&lock);
    refresh();
    note(name, -1);
    if (!is_init && users == 0) what.code = UNINITIALIZED;
    else if (holds(&now.all)) what = now.all;
    else if (is_init && holds(&now.init)) what = now.init;
    pthread_mutex_unlock(&lock);
    return answer(what, NULL);
}

static result ask(void *handle, enum field field, unsigned long long *value) {
    size_t number = (size_t)handle - 1;
    struct what what = {SUCCESS, 0, 0, 0, 1};
    if (number >= GPUS) return INVALID;
    pthread_mutex_lock(&lock);
    refresh();
    note(FIELDS[field].name, (int)number);
    what.value = FIELDS[field].otherwise;
    if (users == 0) what.code = UNINITIALIZED;
    else if (holds(&now.all)) what = now.all;
    else if (!now.gpus[number].present) what.code = 15;
    else if (holds(&now.gpus[number].any)) what = now.gpus[number].any;
    else if (holds(&now.gpus[number].fields[field])) what = now.gpus[number].fields[field];
    pthread_mutex_unlock(&lock);
    return answer(what, value);
}

static result ask_int(void *handle, enum field field, unsigned *into) {
    unsigned long long value = 0;
    result code = ask(handle, field, &value);
    if (code == SUCCESS) *into = (unsigned)value;
    return code;
}

API result nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    result code = general("init", 1);
    if (code != SUCCESS) return code;
    pthread_mutex_lock(&lock);
    if (users++ == 0 && *now.device) device_handle = open(now.device, O_RDONLY | (now.keep ? 0 : O_CLOEXEC));
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API result nvmlShutdown(void) {
    result code = SUCCESS;
    pthread_mutex_lock(&lock);
    if (users == 0) code = UNINITIALIZED;
    else if (--users == 0 && device_handle >= 0 && !now.keep) { close(device_handle); device_handle = -1; }
    pthread_mutex_unlock(&lock);
    return code;
}

API const char *nvmlErrorString(result code) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) return ERRORS[i].name;
    return code == SUCCESS ? "Success" : "Unknown Error";
}

API result nvmlSystemGetDriverVersion(char *into, unsigned size) {
    result code = general("driver", 0);
    if (code == SUCCESS) snprintf(into, size, "%s", now.driver);
    return code;
}

API result nvmlDeviceGetCount_v2(unsigned *count) {
    result code = general("count", 0);
    if (code == SUCCESS) *count = now.count;
    return code;
}

API result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    result code = general("handle", 0);
    if (code != SUCCESS) return code;
    if (index >= now.count) return INVALID;
    if (holds(&now.gpus[index].any) && now.gpus[index].any.code == 15) return 15;
    *handle = (void *)((size_t)index + 1);
    return SUCCESS;
}

static result identity(void *handle, size_t offset, char *into, unsigned size) {
    size_t number = (size_t)handle - 1;
    result code = general("identity", 0);
    if (code != SUCCESS) return code;
    if (number >= GPUS) return INVALID;
    snprintf(into, size, "%s", (const char *)&now.gpus[number] + offset);
    return SUCCESS;
}

API result nvmlDeviceGetUUID(void *handle, char *into, unsigned size) {
    return identity(handle, offsetof(struct gpu, uuid), into, size);
}

API result nvmlDeviceGetName(void *handle, char *into, unsigned size) {
    return identity(handle, offsetof(struct gpu, name), into, size);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
API result nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    result code = identity(handle, offsetof(struct gpu, pci), pci->bus_id, sizeof pci->bus_id);
    if (code == SUCCESS) sscanf(pci->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return code;
}

struct utilization { unsigned gpu, memory; };
API result nvmlDeviceGetUtilizationRates(void *handle, struct utilization *into) {
    result code = ask_int(handle, UTIL_GPU, &into->gpu);
    return code != SUCCESS ? code : ask_int(handle, UTIL_MEMORY, &into->memory);
}

struct memory { unsigned long long total, free, used; };
API result nvmlDeviceGetMemoryInfo(void *handle, struct memory *into) {
    result code = ask(handle, MEMORY_TOTAL, &into->total);
    if (code == SUCCESS) code = ask(handle, MEMORY_USED, &into->used);
    if (code == SUCCESS) into->free = into->total - into->used;
    return code;
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
API result nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *into) {
    result code = ask(handle, MEMORY_TOTAL, &into->total);
    if (code == SUCCESS) code = ask(handle, MEMORY_RESERVED, &into->reserved);
    if (code == SUCCESS) code = ask(handle, MEMORY_USED, &into->used);
    if (code == SUCCESS) into->free = into->total - into->reserved - into->used;
    return code;
}

API result nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *into) {
    return sensor != 0 ? INVALID : ask_int(handle, TEMPERATURE, into);
}

API result nvmlDeviceGetPowerUsage(void *handle, unsigned *into) { return ask_int(handle, POWER, into); }

API result nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *into) {
    return ask(handle, ENERGY, into);
}

API result nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *into) {
    if (type != 1 && type != 2) return NOT_SUPPORTED;
    return ask_int(handle, type == 1 ? CLOCK_SM : CLOCK_MEMORY, into);
}

API result nvmlDeviceGetPcieThroughput(void *handle, unsigned counter, unsigned *into) {
    return counter > 1 ? INVALID : ask_int(handle, counter == 0 ? PCIE_TX : PCIE_RX, into);
}

API result nvmlDeviceGetPcieReplayCounter(void *handle, unsigned *into) {
    return ask_int(handle, PCIE_REPLAY, into);
}

API result nvmlDeviceGetTotalEccErrors(void *handle, unsigned error, unsigned counter, unsigned long long *into) {
    if (error > 1 || counter > 1) return INVALID;
    return ask(handle, (enum field)(ECC_SBE_VOLATILE + error + 2 * counter), into);
}

API result nvmlDeviceGetFanSpeed(void *handle, unsigned *into) { return ask_int(handle, FAN, into); }

struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
API result nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *into) {
    result code = ask(handle, PROCESS_LIST, NULL);
    if (code != SUCCESS) return code;
    const struct gpu *gpu = &now.gpus[(size_t)handle - 1];
    unsigned room = *count, needed = gpu->process_count;
    *count = needed;
    if (needed > room || (needed > 0 && into == NULL)) return SIZE;
    for (unsigned i = 0; i < needed; i++) into[i] = (struct process){gpu->processes[i], 1 << 30, ~0U, ~0U};
    return SUCCESS;
}

API result nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *into) {
    (void)into;
    *count = 0;
    return (size_t)handle - 1 >= GPUS ? INVALID : SUCCESS;
}
