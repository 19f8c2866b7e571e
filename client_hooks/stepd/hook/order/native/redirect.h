// Has calls of a function, from whatever library of this process calls it by name, go to another one: the slots that the dynamic
// linker filled are filled anew. For functions that TensorFlow offers no other way to stand in for; Linux only.
#pragma once

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace stepd {

struct Redirection {
  const char* symbol;
  void* to;
  const void* own;  // where the library that asks lies: its own calls stay as they are
  int slots;
};

inline bool IsCallSlot(uint32_t type) {
#if defined(__x86_64__)
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
#else
  return false;
#endif
}

// The page stays writable: other slots on it may be filled by the linker at the same time, which must not lose its right to.
inline bool Fill(void** slot, void* to) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* begin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page - 1));
  if (mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(slot, to, __ATOMIC_RELEASE);
  return true;
}

inline int RedirectIn(dl_phdr_info* library, size_t, void* asked) {
  auto* wanted = static_cast<Redirection*>(asked);
  const auto base = static_cast<uintptr_t>(library->dlpi_addr);
  if (reinterpret_cast<const void*>(base) == wanted->own) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int k = 0; k < library->dlpi_phnum; ++k) {
    const ElfW(Phdr)& part = library->dlpi_phdr[k];
    if (part.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + part.p_vaddr);
  }
  if (dynamic == nullptr) return 0;
  uintptr_t symbols = 0, names = 0, tables[2] = {0, 0};
  size_t sizes[2] = {0, 0};
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    // The linker has made addresses of these, but for the kernel's own little library.
    const uintptr_t value = dynamic->d_un.d_ptr, address = value < base ? base + value : value;
    switch (dynamic->d_tag) {
      case DT_SYMTAB: symbols = address; break;
      case DT_STRTAB: names = address; break;
      case DT_JMPREL: tables[0] = address; break;
      case DT_PLTRELSZ: sizes[0] = dynamic->d_un.d_val; break;
      case DT_RELA: tables[1] = address; break;
      case DT_RELASZ: sizes[1] = dynamic->d_un.d_val; break;
    }
  }
  if (symbols == 0 || names == 0) return 0;
  for (int k = 0; k < 2; ++k) {
    const auto* relocation = reinterpret_cast<const ElfW(Rela)*>(tables[k]);
    for (size_t i = 0; tables[k] != 0 && i < sizes[k] / sizeof(*relocation); ++i) {
      if (!IsCallSlot(ELF64_R_TYPE(relocation[i].r_info))) continue;
      const auto& symbol = reinterpret_cast<const ElfW(Sym)*>(symbols)[ELF64_R_SYM(relocation[i].r_info)];
      if (std::strcmp(reinterpret_cast<const char*>(names) + symbol.st_name, wanted->symbol) != 0) continue;
      wanted->slots += Fill(reinterpret_cast<void**>(base + relocation[i].r_offset), wanted->to);
    }
  }
  return 0;
}

// How many slots call `to` now in place of `from`.
inline int Redirect(void* from, void* to) {
  Dl_info replaced, own;
  if (dladdr(from, &replaced) == 0 || replaced.dli_sname == nullptr || dladdr(to, &own) == 0) return 0;
  Redirection wanted{replaced.dli_sname, to, own.dli_fbase, 0};
  dl_iterate_phdr(RedirectIn, &wanted);
  return wanted.slots;
}

}  // namespace stepd
