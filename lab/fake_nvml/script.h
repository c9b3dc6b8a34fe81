/* The script of the fake NVML: what it may say, and reading it. The caller holds a lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define GPUS 16
#define PROCESSES 64
#define TEXT 128

typedef int result;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, SIZE = 7, UNKNOWN = 999 };

static const struct { const char *name; result code; } ERRORS[] = {
    {"Uninitialized", 1},   {"NotSupported", 3},      {"NoPermission", 4},   {"NotFound", 6},
    {"DriverNotLoaded", 9}, {"Timeout", 10},          {"IrqIssue", 11},      {"FunctionNotFound", 13},
    {"GpuIsLost", 15},      {"ResetRequired", 16},    {"OperatingSystem", 17},
    {"LibRmVersionMismatch", 18}, {"Memory", 20},     {"GpuNotFound", 28},   {"Unknown", 999},
};

enum field {
    UTIL_GPU, UTIL_MEMORY, MEMORY_TOTAL, MEMORY_USED, MEMORY_RESERVED, TEMPERATURE, POWER, ENERGY, CLOCK_SM,
    CLOCK_MEMORY, PCIE_TX, PCIE_RX, PCIE_REPLAY, ECC_SBE_VOLATILE, ECC_DBE_VOLATILE, ECC_SBE_AGGREGATE,
    ECC_DBE_AGGREGATE, FAN, PROCESS_LIST, FIELD_COUNT
};
static const struct { const char *name; unsigned long long otherwise; } FIELDS[FIELD_COUNT] = {
    {"utilization", 0},   {"memory_utilization", 0}, {"memory_total", 85899345920ULL}, {"memory_used", 0},
    {"memory_reserved", 0}, {"temperature", 35},     {"power", 70000},   {"energy", 0},  {"clock_sm", 1980},
    {"clock_memory", 2619}, {"pcie_tx", 0},          {"pcie_rx", 0},     {"pcie_replay", 0},
    {"ecc_sbe_volatile", 0}, {"ecc_dbe_volatile", 0}, {"ecc_sbe_aggregate", 0}, {"ecc_dbe_aggregate", 0},
    {"fan", 30},          {"process_list", 0},
};

struct what { result code; unsigned long long value; double hang; double until; int set; };
struct gpu {
    int present;
    char uuid[TEXT], name[TEXT], pci[TEXT];
    struct what fields[FIELD_COUNT], any;
    unsigned processes[PROCESSES], process_count;
};
struct script {
    struct gpu gpus[GPUS];
    struct what all, init;
    unsigned count;
    int keep;
    char driver[TEXT], device[TEXT], log[TEXT];
};

static struct script now;
static struct stat seen;

static double seconds(void) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec / 1e9;
}

/* WHAT [until EPOCH], from the words that strtok_r has left. */
static struct what parse_what(char **rest) {
    struct what found = {UNKNOWN, 0, 0, 0, 1};
    char *word = strtok_r(NULL, " \t\n", rest), *end;
    if (word == NULL) return found;
    if (strncmp(word, "hang:", 5) == 0) {
        found.code = SUCCESS;
        found.hang = strtod(word + 5, NULL);
    } else {
        found.value = strtoull(word, &end, 10);
        if (*end == '\0') found.code = SUCCESS;
        for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
            if (strcmp(word, ERRORS[i].name) == 0) found.code = ERRORS[i].code;
    }
    word = strtok_r(NULL, " \t\n", rest);
    if (word != NULL && strcmp(word, "until") == 0 && (word = strtok_r(NULL, " \t\n", rest)) != NULL)
        found.until = strtod(word, NULL);
    return found;
}

static void rest_of_line(char *into, char **rest) {
    char *text = strtok_r(NULL, "\n", rest);
    if (text == NULL) return;
    snprintf(into, TEXT, "%s", text + strspn(text, " \t"));
}

static void parse_gpu(struct script *script, char **rest) {
    char *word = strtok_r(NULL, " \t\n", rest);
    int number = word == NULL ? -1 : atoi(word);
    if (number < 0 || number >= GPUS || (word = strtok_r(NULL, " \t\n", rest)) == NULL) return;
    struct gpu *gpu = &script->gpus[number];
    gpu->present = 1;
    if ((unsigned)number >= script->count) script->count = (unsigned)number + 1;
    if (strcmp(word, "uuid") == 0) rest_of_line(gpu->uuid, rest);
    else if (strcmp(word, "name") == 0) rest_of_line(gpu->name, rest);
    else if (strcmp(word, "pci") == 0) rest_of_line(gpu->pci, rest);
    else if (strcmp(word, "any") == 0) gpu->any = parse_what(rest);
    else if (strcmp(word, "processes") == 0) {
        gpu->process_count = 0;
        while ((word = strtok_r(NULL, " \t\n", rest)) != NULL && gpu->process_count < PROCESSES)
            gpu->processes[gpu->process_count++] = (unsigned)strtoul(word, NULL, 10);
    } else
        for (int i = 0; i < FIELD_COUNT; i++)
            if (strcmp(word, FIELDS[i].name) == 0) gpu->fields[i] = parse_what(rest);
}

static void parse(FILE *file) {
    static struct script next;
    char line[1024], *rest, *word;
    memset(&next, 0, sizeof next);
    snprintf(next.driver, TEXT, "570.86");
    while (fgets(line, sizeof line, file) != NULL) {
        if ((word = strtok_r(line, " \t\n", &rest)) == NULL || *word == '#') continue;
        if (strcmp(word, "driver") == 0) rest_of_line(next.driver, &rest);
        else if (strcmp(word, "device") == 0) rest_of_line(next.device, &rest);
        else if (strcmp(word, "log") == 0) rest_of_line(next.log, &rest);
        else if (strcmp(word, "keep") == 0) next.keep = 1;
        else if (strcmp(word, "all") == 0) next.all = parse_what(&rest);
        else if (strcmp(word, "init") == 0) next.init = parse_what(&rest);
        else if (strcmp(word, "gpu") == 0) parse_gpu(&next, &rest);
    }
    for (unsigned i = 0; i < next.count; i++) {
        struct gpu *gpu = &next.gpus[i];
        if (!*gpu->uuid) snprintf(gpu->uuid, TEXT, "GPU-00000000-0000-0000-0000-%012u", i);
        if (!*gpu->name) snprintf(gpu->name, TEXT, "NVIDIA H100 80GB HBM3");
        if (!*gpu->pci) snprintf(gpu->pci, TEXT, "00000000:%02X:00.0", 0x10 + i);
    }
    now = next;
}

static void refresh(void) {
    const char *path = getenv("SIDEBAND_FAKE_NVML");
    struct stat status;
    if (path == NULL) path = "/run/fake_nvml.conf";
    if (stat(path, &status) != 0) return; /* between two renames: what was read last holds */
    if (status.st_ino == seen.st_ino && status.st_size == seen.st_size &&
        status.st_mtim.tv_sec == seen.st_mtim.tv_sec && status.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    parse(file);
    fclose(file);
    seen = status;
}

static int holds(const struct what *what) {
    return what->set && (what->until == 0 || seconds() < what->until);
}
