/* A stand-in libnvidia-ml.so.1 whose answers come from a text file, so that the real nvidia-ml-py runs unchanged
 * on machines without a GPU. README.md says what the file may contain.
 *
 * The file named by $FAKENVML_STATE is read again on every call: a test changes a card while the product runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int ret_t;
typedef unsigned long long u64;
enum {
    OK = 0, UNINIT = 1, INVALID = 2, NOTSUP = 3, NOPERM = 4, NOTFOUND = 6, SMALL = 7, NODRV = 9, TIMEOUT = 10, NOFUNC = 13,
    LOST = 15, NOLIB = 12, RESET = 16, MISMATCH = 18
};
enum { MAX_DEVICES = 128, MAX_PROCESSES = 64, MAX_FAULTS = 24, MAX_EVENTS = 64, HANG = -1 };

typedef struct { unsigned pid; u64 mem; unsigned gi, ci; } proc_t; /* nvmlProcessInfo, v2 and v3 */
typedef struct { char field[24]; int code; } fault_t;
typedef struct {
    char uuid[96], name[96], nvlink[128];
    int parent, gi, ci, no_memory, lost, mig; /* parent < 0: a physical card */
    u64 total, used, reserved;
    unsigned gpu_util, mem_util, np, ng, nf, bus;
    int temp, numa, memnuma, pcie, major, minor, rows_pending, rows_failed;
    long ecc_corrected, ecc_uncorrected;
    proc_t compute[MAX_PROCESSES], graphics[MAX_PROCESSES];
    fault_t faults[MAX_FAULTS];
} card_t;
typedef struct { unsigned number; char uuid[96]; u64 xid; } event_t;
typedef struct {
    card_t cards[MAX_DEVICES];
    event_t events[MAX_EVENTS];
    char driver[32], needs[256];
    unsigned n, ne;
    int init, down, count, runtime, hang_init, generation;
    long delay_us;
} state_t;
typedef struct { u64 total, free, used; } memory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busid[32]; } pci_t;
typedef struct { void *device; u64 type, data; unsigned gi, ci; } event_data_t;
typedef struct { unsigned version; int sensor, temperature; } temperature_t;

static int references;
static int generation; /* of the state when the library was opened */
static unsigned last_event; /* each event is delivered once in a process */

static u64 mib(const char *text) { return strtoull(text, NULL, 10) << 20; }

static void add_process(proc_t *list, unsigned *n, const char *text) {
    unsigned pid;
    long size;
    if (*n < MAX_PROCESSES && sscanf(text, "%u:%ld", &pid, &size) == 2)
        list[(*n)++] = (proc_t){pid, size < 0 ? ~0ULL : (u64)size << 20, ~0u, ~0u};
}

static void add_fault(card_t *c, const char *text, int code) {
    if (c->nf < MAX_FAULTS) {
        snprintf(c->faults[c->nf].field, sizeof c->faults[0].field, "%s", text);
        c->faults[c->nf++].code = code;
    }
}

static void read_option(card_t *c, char *key, char *value) {
    struct { const char *key; int *target; } numbers[] = {
        {"temp", &c->temp}, {"numa", &c->numa}, {"memnuma", &c->memnuma}, {"pcie", &c->pcie}, {"mig", &c->mig}, {"gi", &c->gi},
        {"ci", &c->ci}, {"rows_pending", &c->rows_pending}, {"rows_failed", &c->rows_failed},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) *numbers[i].target = atoi(value);
    if (!strcmp(key, "reserved")) c->reserved = mib(value);
    if (!strcmp(key, "total_bytes")) c->total = strtoull(value, NULL, 10);
    if (!strcmp(key, "used_bytes")) c->used = strtoull(value, NULL, 10);
    if (!strcmp(key, "bus")) c->bus = (unsigned)strtoul(value, NULL, 16);
    if (!strcmp(key, "ecc")) sscanf(value, "%ld,%ld", &c->ecc_corrected, &c->ecc_uncorrected);
    if (!strcmp(key, "cc")) sscanf(value, "%d.%d", &c->major, &c->minor);
    if (!strcmp(key, "nvlink")) snprintf(c->nvlink, sizeof c->nvlink, ",%s,", value);
    if (!strcmp(key, "gfx")) add_process(c->graphics, &c->ng, value);
    if (!strncmp(key, "err.", 4)) add_fault(c, key + 4, atoi(value));
    if (!strncmp(key, "hang.", 5)) add_fault(c, key + 5, HANG);
}

static void read_order(state_t *s, char *key, char **save) {
    char *value = strtok_r(NULL, " \t\r\n", save), *more = strtok_r(NULL, " \t\r\n", save);
    char *last = strtok_r(NULL, " \t\r\n", save);
    if (!value) return;
    if (!strcmp(key, "!init")) s->init = atoi(value);
    if (!strcmp(key, "!hang_init")) s->hang_init = atoi(value);
    if (!strcmp(key, "!down")) s->down = atoi(value);
    if (!strcmp(key, "!count")) s->count = atoi(value);
    if (!strcmp(key, "!runtime")) s->runtime = atoi(value);
    if (!strcmp(key, "!needs")) snprintf(s->needs, sizeof s->needs, "%s", value);
    if (!strcmp(key, "!generation")) s->generation = atoi(value);
    if (!strcmp(key, "!delay_us")) s->delay_us = atol(value);
    if (!strcmp(key, "!driver")) snprintf(s->driver, sizeof s->driver, "%s", value);
    if (!strcmp(key, "!event") && last && s->ne < MAX_EVENTS) {
        event_t *e = &s->events[s->ne++];
        e->number = (unsigned)atoi(value);
        snprintf(e->uuid, sizeof e->uuid, "%s", more);
        e->xid = strtoull(last, NULL, 10);
    }
}

static void read_card(state_t *s, char *first, char **save) {
    card_t *c = &s->cards[s->n];
    int child = *first == '+', k = 0, parent = (int)s->n - 1;
    char *a[5], *t;
    while (child && parent >= 0 && s->cards[parent].parent >= 0) parent--;
    memset(c, 0, sizeof *c);
    c->parent = child ? parent : -1;
    c->numa = c->memnuma = c->gi = c->ci = c->rows_pending = c->rows_failed = -1;
    c->ecc_corrected = c->ecc_uncorrected = -1;
    c->temp = 40;
    c->major = 9;
    c->bus = s->n + 1;
    c->mig = -1;
    snprintf(c->uuid, sizeof c->uuid, "%s", child ? first + 1 : first);
    while (k < 5 && (a[k] = strtok_r(NULL, " \t\r\n", save))) k++;
    if (k < 5) return;
    snprintf(c->name, sizeof c->name, "%s", a[0]);
    for (char *p = c->name; *p; p++) if (*p == '_') *p = ' ';
    c->total = mib(a[1]);
    c->no_memory = !strcmp(a[2], "-1");
    c->lost = !strcmp(a[2], "-2");
    c->used = c->no_memory || c->lost ? 0 : mib(a[2]);
    c->gpu_util = (unsigned)atoi(a[3]);
    c->mem_util = (unsigned)atoi(a[4]);
    while ((t = strtok_r(NULL, " \t\r\n", save)) && *t != '#') {
        char *equals = strchr(t, '=');
        if (equals) { *equals = 0; read_option(c, t, equals + 1); }
        else add_process(c->compute, &c->np, t);
    }
    s->n++;
}

static void load(state_t *s) {
    memset((char *)s + offsetof(state_t, driver), 0, sizeof *s - offsetof(state_t, driver)); /* lists end at n, ne */
    strcpy(s->driver, "580.00.fake");
    const char *path = getenv("FAKENVML_STATE");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) return;
    char line[8192];
    while (fgets(line, sizeof line, f) && s->n < MAX_DEVICES) {
        char *save = NULL, *first = strtok_r(line, " \t\r\n", &save);
        if (!first || *first == '#') continue;
        if (*first == '!') read_order(s, first, &save);
        else read_card(s, first, &save);
    }
    fclose(f);
}

static int same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec
        && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Every thread has its own copy of what it read last, for calls may come from several at once; the file is read
   again when it is another one, so that a call costs about what a driver's does. */
static state_t *now(void) {
    static __thread state_t *state;
    static __thread struct stat seen;
    struct stat found;
    const char *path = getenv("FAKENVML_STATE");
    int known = path && !stat(path, &found);
    if (state && known && same(&seen, &found)) return state;
    if (!state) state = malloc(sizeof *state);
    if (known) seen = found;
    load(state);
    return state;
}

static int fault_of(const card_t *c, const char *field) {
    for (unsigned i = 0; i < c->nf; i++)
        if (!strcmp(c->faults[i].field, field) || !strcmp(c->faults[i].field, "all")) return c->faults[i].code;
    return OK;
}

/* A handle is a card's position in the file plus one. A call hangs for as long as the file says so. */
static ret_t ask(void *handle, const char *field, state_t **s, card_t **c) {
    int fault;
    size_t i = (size_t)handle;
    do {
        if (!references) return UNINIT;
        *s = now();
        if ((*s)->down) return (*s)->down;
        if ((*s)->generation != generation) return LOST;
        if (i < 1 || i > (*s)->n) return INVALID;
        *c = &(*s)->cards[i - 1];
        fault = fault_of(*c, field);
        if (fault == HANG) usleep(5000);
    } while (fault == HANG);
    if ((*s)->delay_us) usleep((*s)->delay_us);
    return (*c)->lost ? LOST : fault;
}
#define ASK(field) state_t *s; card_t *c; ret_t r = ask(h, field, &s, &c); if (r) return r; (void)s

static ret_t put(char *buffer, unsigned n, const char *text) {
    if (strlen(text) + 1 > n) return SMALL;
    strcpy(buffer, text);
    return OK;
}

/* the library */
ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    while (now()->hang_init) usleep(5000);
    state_t *s = now();
    if (s->init || s->down) return s->init ? s->init : s->down;
    int file = *s->needs ? open(s->needs, O_RDWR) : -1;
    if (*s->needs && file < 0) return errno == ENOENT ? NODRV : NOPERM;
    if (file >= 0) close(file);
    if (!references) generation = s->generation;
    references++;
    return OK;
}
ret_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ret_t nvmlInit(void) { return nvmlInitWithFlags(0); }
ret_t nvmlShutdown(void) { if (!references) return UNINIT; references--; return OK; }
ret_t nvmlSystemGetDriverVersion(char *b, unsigned n) { return references ? put(b, n, now()->driver) : UNINIT; }
ret_t nvmlSystemGetNVMLVersion(char *b, unsigned n) { return put(b, n, "13.580.00.fake"); }
ret_t nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return OK; }
ret_t nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return OK; }

/* which cards there are; with !runtime those that the container runtime would let through */
static int visible(const state_t *s, const card_t *c) {
    const char *list = getenv("NVIDIA_VISIBLE_DEVICES");
    if (!s->runtime || (list && !strcmp(list, "all"))) return 1;
    size_t length = strlen(c->uuid);
    for (const char *p = list; p && (p = strstr(p, c->uuid)); p += length)
        if ((p == list || p[-1] == ',') && (p[length] == ',' || !p[length])) return 1;
    return 0;
}
static void *physical(state_t *s, unsigned index) {
    for (unsigned i = 0; i < s->n; i++)
        if (s->cards[i].parent < 0 && visible(s, &s->cards[i]) && index-- == 0) return (void *)(size_t)(i + 1);
    return NULL;
}
ret_t nvmlDeviceGetCount_v2(unsigned *n) {
    if (!references) return UNINIT;
    state_t *s = now();
    if (s->down || s->count) return s->down ? s->down : s->count;
    for (*n = 0; physical(s, *n); (*n)++) { }
    return OK;
}
static ret_t handle_of(void *h) { ASK("handle"); return OK; }
ret_t nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    if (!references) return UNINIT;
    *h = physical(now(), i);
    if (!*h) return INVALID;
    ret_t r = handle_of(*h);
    return r == LOST ? OK : r;
}
ret_t nvmlDeviceGetHandleByUUID(const char *uuid, void **h) {
    if (!references) return UNINIT;
    state_t *s = now();
    for (unsigned i = 0; i < s->n; i++)
        if (!strcmp(s->cards[i].uuid, uuid)) { *h = (void *)(size_t)(i + 1); return OK; }
    return NOTFOUND;
}
ret_t nvmlDeviceGetIndex(void *h, unsigned *i) {
    ASK("index");
    *i = 0;
    for (card_t *each = s->cards; each < c; each++) *i += each->parent < 0;
    return OK;
}
ret_t nvmlDeviceGetMinorNumber(void *h, unsigned *i) { return nvmlDeviceGetIndex(h, i); }

/* what a card is */
ret_t nvmlDeviceGetUUID(void *h, char *b, unsigned n) { ASK("uuid"); return put(b, n, c->uuid); }
ret_t nvmlDeviceGetName(void *h, char *b, unsigned n) { ASK("name"); return put(b, n, c->name); }
ret_t nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    ASK("capability");
    *major = c->major;
    *minor = c->minor;
    return OK;
}
ret_t nvmlDeviceGetPciInfo_v3(void *h, pci_t *p) {
    ASK("pci");
    memset(p, 0, sizeof *p);
    p->bus = c->bus;
    snprintf(p->busid, sizeof p->busid, "00000000:%02X:00.0", c->bus & 255);
    return OK;
}
ret_t nvmlDeviceGetMemoryAffinity(void *h, unsigned n, unsigned long *set, unsigned scope) {
    ASK("numa");
    (void)scope;
    if (c->numa < 0) return NOTSUP;
    memset(set, 0, n * sizeof *set);
    set[c->numa / 64] = 1UL << (c->numa % 64);
    return OK;
}
ret_t nvmlDeviceGetNumaNodeId(void *h, int *node) { ASK("memnuma"); *node = c->memnuma; return c->memnuma < 0 ? NOTSUP : OK; }

/* what is on it */
ret_t nvmlDeviceGetMemoryInfo(void *h, memory_t *m) {
    ASK("memory");
    if (c->no_memory) return NOTSUP;
    m->total = c->total;
    m->used = c->used + c->reserved;
    m->free = m->total - m->used;
    return OK;
}
ret_t nvmlDeviceGetMemoryInfo_v2(void *h, memory2_t *m) {
    ASK("memory_v2");
    memory_t old;
    if ((r = nvmlDeviceGetMemoryInfo(h, &old))) return r;
    m->total = old.total;
    m->reserved = c->reserved;
    m->used = c->used;
    m->free = old.free;
    return OK;
}
static ret_t put_processes(const proc_t *list, unsigned np, unsigned *n, proc_t *out) {
    unsigned room = *n;
    *n = np;
    if (np == 0) return OK;
    if (!out || room < np) return SMALL;
    memcpy(out, list, np * sizeof *out);
    return OK;
}
/* A partitioned card lists what its instances list, each with the instance's number. */
static unsigned gather(const state_t *s, const card_t *c, int graphics, proc_t *out) {
    unsigned n = 0;
    int self = (int)(c - s->cards);
    for (unsigned i = 0; i < s->n; i++) {
        const card_t *each = &s->cards[i];
        if (each != c && each->parent != self) continue;
        for (unsigned k = 0; k < (graphics ? each->ng : each->np) && n < MAX_PROCESSES; k++, n++) {
            out[n] = graphics ? each->graphics[k] : each->compute[k];
            if (each->gi >= 0) out[n].gi = (unsigned)each->gi;
        }
    }
    return n;
}
ret_t nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, proc_t *out) {
    ASK("processes");
    proc_t all[MAX_PROCESSES];
    return put_processes(all, gather(s, c, 0, all), n, out);
}
ret_t nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *n, proc_t *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(h, n, out);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *n, proc_t *out) {
    ASK("graphics");
    proc_t all[MAX_PROCESSES];
    return put_processes(all, gather(s, c, 1, all), n, out);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *n, proc_t *out) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(h, n, out);
}
ret_t nvmlDeviceGetUtilizationRates(void *h, utilization_t *u) {
    ASK("utilization");
    u->gpu = c->gpu_util;
    u->memory = c->mem_util;
    return OK;
}

/* how it is */
ret_t nvmlDeviceGetTemperature(void *h, unsigned sensor, unsigned *t) { ASK("temperature"); (void)sensor; *t = (unsigned)c->temp; return OK; }
ret_t nvmlDeviceGetTemperatureV(void *h, temperature_t *t) { ASK("temperature"); t->temperature = c->temp; return OK; }
ret_t nvmlDeviceGetTotalEccErrors(void *h, unsigned type, unsigned counter, u64 *n) {
    ASK("ecc");
    (void)counter;
    long count = type ? c->ecc_uncorrected : c->ecc_corrected;
    *n = (u64)count;
    return count < 0 ? NOTSUP : OK;
}
ret_t nvmlDeviceGetRemappedRows(void *h, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ASK("rows");
    if (c->rows_pending < 0) return NOTSUP;
    *corrected = *uncorrected = 0;
    *pending = (unsigned)c->rows_pending;
    *failed = c->rows_failed > 0;
    return OK;
}

/* slices */
ret_t nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
    ASK("mig");
    if (c->mig < 0) return NOTSUP;
    *current = *pending = (unsigned)c->mig;
    return OK;
}
ret_t nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) { ASK("mig"); *n = 7; return OK; }
ret_t nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **found) {
    ASK("mig");
    for (unsigned i = 0; i < s->n; i++)
        if (s->cards[i].parent == (int)(c - s->cards) && index-- == 0) { *found = (void *)(size_t)(i + 1); return OK; }
    return NOTFOUND;
}
ret_t nvmlDeviceGetGpuInstanceId(void *h, unsigned *id) { ASK("mig"); *id = (unsigned)c->gi; return c->gi < 0 ? NOTSUP : OK; }
ret_t nvmlDeviceGetComputeInstanceId(void *h, unsigned *id) { ASK("mig"); *id = (unsigned)c->ci; return c->ci < 0 ? NOTSUP : OK; }

/* neighbours */
ret_t nvmlDeviceGetP2PStatus(void *h, void *other, int capability, int *status) {
    ASK("links");
    char wanted[16];
    unsigned index = 0;
    nvmlDeviceGetIndex(other, &index);
    snprintf(wanted, sizeof wanted, ",%u,", index);
    *status = capability == 2 && (strstr(c->nvlink, wanted) || !strcmp(c->nvlink, ",all,")) ? 0 : 2;
    return OK;
}
ret_t nvmlDeviceGetTopologyCommonAncestor(void *h, void *other, unsigned *level) {
    ASK("links");
    card_t *peer = &s->cards[(size_t)other - 1];
    *level = c->pcie && c->pcie == peer->pcie ? 10 : c->numa == peer->numa ? 40 : 50;
    return OK;
}

/* faults that the driver reports */
ret_t nvmlEventSetCreate(void **set) { *set = (void *)(size_t)1; return references ? OK : UNINIT; }
ret_t nvmlEventSetFree(void *set) { (void)set; return OK; }
ret_t nvmlDeviceGetSupportedEventTypes(void *h, u64 *types) { ASK("events"); *types = 8; return OK; }
ret_t nvmlDeviceRegisterEvents(void *h, u64 types, void *set) { ASK("events"); (void)types; (void)set; return OK; }
ret_t nvmlEventSetWait_v2(void *set, event_data_t *event, unsigned timeout_ms) {
    (void)set;
    for (long left = timeout_ms; ; left -= 50) {
        if (!references) return UNINIT;
        state_t *s = now();
        for (unsigned i = 0; i < s->ne; i++)
            if (s->events[i].number > last_event) {
                last_event = s->events[i].number;
                memset(event, 0, sizeof *event);
                nvmlDeviceGetHandleByUUID(s->events[i].uuid, &event->device);
                event->type = 8;
                event->data = s->events[i].xid;
                return OK;
            }
        if (left <= 0) return TIMEOUT;
        usleep((left < 50 ? left : 50) * 1000);
    }
}

const char *nvmlErrorString(ret_t r) {
    switch (r) {
    case OK: return "Success";
    case UNINIT: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOTSUP: return "Not Supported";
    case NOPERM: return "Insufficient Permissions";
    case NOTFOUND: return "Not Found";
    case SMALL: return "Insufficient Size";
    case NODRV: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case NOLIB: return "NVML Shared Library Not Found";
    case NOFUNC: return "Function Not Found";
    case LOST: return "GPU is lost";
    case RESET: return "GPU requires restart";
    case MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
