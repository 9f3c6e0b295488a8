// What a thread that dies of a signal leaves in the log: addresses, to which Scripts/symbolize gives names.
//
// The handler only calls what a signal handler may call, and backtrace(3), whose library is loaded before. It allocates
// nothing and takes no lock of the program. If it should fail, the kernel ends the process all the same: by the second
// signal, or by the alarm.
#define _GNU_SOURCE
#include <elf.h>
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>

#include "record.h"

enum { MOST_MODULES = 64, MOST_FRAMES = 64, STACK_SIZE = 128 << 10 };

static struct module {
  uintptr_t start, end;  // of its code
  uintptr_t offset;      // of its addresses from those in its file
  char name[160];
} modules[MOST_MODULES];
static int module_count;
static char build[64 + 1];

struct text {
  char bytes[8192];
  size_t length;
};

static void put(struct text *text, const char *words) {
  while (*words && text->length < sizeof text->bytes) text->bytes[text->length++] = *words++;
}

static void put_number(struct text *text, uint64_t number, unsigned base) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = 0;
  do {
    digits[--at] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number > 0);
  if (base == 16) put(text, "0x");
  put(text, digits + at);
}

static void put_address(struct text *text, uintptr_t address) {
  for (int i = 0; i < module_count; i++) {
    if (address < modules[i].start || address >= modules[i].end) continue;
    put(text, modules[i].name);
    put(text, "+");
    address -= modules[i].offset;
    break;
  }
  put_number(text, address, 16);
}

static void write_out(struct text *text) {
  // A pipe that nobody reads must not keep a dead server.
  struct pollfd log = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&log, 1, 0) == 1 && log.revents & POLLOUT) {
    ssize_t written = write(STDERR_FILENO, text->bytes, text->length);
    (void)written;  // nobody is left to tell
  }
  text->length = 0;
}

static uintptr_t program_counter(const void *context) {
#if defined(__x86_64__)
  return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc;
#else
  (void)context;
  return 0;
#endif
}

static void report(int number, siginfo_t *info, void *context) {
  alarm(1);
  const bool is_sent = info->si_code <= 0;
  const bool is_own = !is_sent || info->si_pid == getpid();
  // What the thread served is a suspect, unless the disk (or the memory) under a mapped page failed: another read may
  // meet the same, or none.
  const bool is_hardware = number == SIGBUS && !is_sent && info->si_code != BUS_ADRALN;
  struct csystem_record *const record = csystem_own_record;
  if (record && is_own && !is_hardware) record->died = (uint32_t)number;

  struct text text = {.length = 0};
  char thread[16] = "";
  const char *const name = sigabbrev_np(number);
  prctl(PR_GET_NAME, thread, 0, 0, 0);
  put(&text, "mediafs: signal ");
  put_number(&text, (uint64_t)number, 10);
  put(&text, " (SIG");
  put(&text, name ? name : "?");
  put(&text, ") in thread ");
  put(&text, thread);
  put(&text, " (");
  put_number(&text, (uint64_t)gettid(), 10);
  if (is_own && is_sent) {
    put(&text, "), which raised it");
  } else if (is_sent) {
    put(&text, "), sent by process ");
    put_number(&text, (uint64_t)info->si_pid, 10);
  } else {
    put(&text, "), address ");
    put_number(&text, (uintptr_t)info->si_addr, 16);
  }
  put(&text, "; build ");
  put(&text, build);
  put(&text, "\nmediafs:   #0 ");
  const uintptr_t counter = program_counter(context);
  put_address(&text, counter);
  put(&text, "\n");
  write_out(&text);  // before the stack, which may be damaged

  void *frames[MOST_FRAMES];
  const int count = backtrace(frames, MOST_FRAMES);
  int first = 0;
  while (first < count && (uintptr_t)frames[first] != counter) first++;
  if (first == count) first = 0;
  for (int i = first + 1; i < count; i++) {
    put(&text, "mediafs:   #");
    put_number(&text, (uint64_t)(i - first), 10);
    put(&text, " ");
    put_address(&text, (uintptr_t)frames[i]);
    put(&text, "\n");
  }
  write_out(&text);
  // Its action is the default again. It waits until this handler returns.
  syscall(SYS_tgkill, getpid(), gettid(), number);
}

static void note_build(const struct dl_phdr_info *info, const ElfW(Phdr) *header) {
  const char *at = (const char *)info->dlpi_addr + header->p_vaddr, *const end = at + header->p_memsz;
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    const ElfW(Nhdr) *const note = (const void *)at;
    const char *const name = at + sizeof *note;
    const unsigned char *const id = (const void *)(name + ((note->n_namesz + 3u) & ~3u));
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
      for (unsigned i = 0; i < note->n_descsz && i < sizeof build / 2; i++) {
        build[2 * i] = "0123456789abcdef"[id[i] >> 4];
        build[2 * i + 1] = "0123456789abcdef"[id[i] & 15];
      }
      return;
    }
    at = (const char *)id + ((note->n_descsz + 3u) & ~3u);
  }
}

static int note_module(struct dl_phdr_info *info, size_t size, void *program) {
  (void)size;
  const bool is_program = info->dlpi_name[0] == 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *const header = &info->dlpi_phdr[i];
    if (is_program && header->p_type == PT_NOTE && !build[0]) note_build(info, header);
    if (header->p_type != PT_LOAD || !(header->p_flags & PF_X) || module_count == MOST_MODULES) continue;
    struct module *const module = &modules[module_count++];
    module->start = info->dlpi_addr + header->p_vaddr;
    module->end = module->start + header->p_memsz;
    module->offset = info->dlpi_addr;
    const char *const name = is_program ? program : info->dlpi_name;
    strncpy(module->name, name, sizeof module->name - 1);
  }
  return 0;
}

void csystem_report_deaths(void) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
  char program[PATH_MAX] = "mediafs";
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) program[length] = 0;
  void *frames[1];
  backtrace(frames, 1);  // loads the library that it uses
  dl_iterate_phdr(note_module, program);
  csystem_give_stack();
  struct sigaction action = {.sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) sigaction(fatal[i], &action, NULL);
}

void csystem_give_stack(void) {
  void *const stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return;  // the handler then uses the thread's own
  const stack_t given = {.ss_sp = stack, .ss_size = STACK_SIZE};
  if (sigaltstack(&given, NULL) != 0) munmap(stack, STACK_SIZE);
}

void csystem_take_stack(void) {
  stack_t given;
  const stack_t none = {.ss_flags = SS_DISABLE};
  if (sigaltstack(&none, &given) == 0 && !(given.ss_flags & SS_DISABLE)) munmap(given.ss_sp, given.ss_size);
}
