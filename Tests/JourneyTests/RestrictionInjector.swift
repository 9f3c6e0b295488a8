/// Prints what comes of each call in an ordinary process of nobody's, and in the server.
let injector = #"""
  import ctypes, errno, os, signal, socket, struct, sys
  server, home, store = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].encode()
  libc = ctypes.CDLL(None, use_errno=True)
  libc.ptrace.restype = libc.syscall.restype = ctypes.c_long
  libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
  SEIZE, INTERRUPT, DETACH, GETREGS, SETREGS, STEP = 0x4206, 0x4207, 17, 12, 13, 9
  RAX, RDI, ORIG, RIP, RSP = 10, 14, 15, 16, 19
  ARGUMENTS = (14, 13, 12, 7, 9, 8)  # rdi rsi rdx r10 r8 r9
  version = libc.syscall(444, None, 0, 1)

  def trace(request, thread, data=None):
      if libc.ptrace(request, thread, None, data) == -1: raise OSError(ctypes.get_errno(), 'ptrace')

  class Thread:
      # A thread of the server, which waits in a system call.
      instruction = None
      def __init__(self, number):
          self.number = number
          trace(SEIZE, number)
          trace(INTERRUPT, number)
          os.waitpid(number, 0x40000000)
          self.before = self.registers()
          self.memory = open('/proc/%d/mem' % number, 'r+b', 0)
          if Thread.instruction is None:
              Thread.instruction = self.before[RIP] - 2
              self.memory.seek(Thread.instruction)
              assert self.memory.read(2) == b'\x0f\x05', 'it does not wait in a system call'
      def registers(self):
          found = (ctypes.c_ulong * 27)()
          trace(GETREGS, self.number, ctypes.byref(found))
          return list(found)
      def set(self, registers): trace(SETREGS, self.number, ctypes.byref((ctypes.c_ulong * 27)(*registers)))
      def call(self, number, *arguments):
          registers, place = list(self.before), self.before[RSP] - 8192
          for register, argument in zip(ARGUMENTS, arguments):
              if isinstance(argument, bytes):
                  self.memory.seek(place)
                  self.memory.write(argument + b'\0')
                  argument, place = place, place + len(argument) + 16
              registers[register] = argument & (1 << 64) - 1
          registers[RAX], registers[ORIG], registers[RIP] = number, (1 << 64) - 1, Thread.instruction
          self.set(registers)
          trace(STEP, self.number)
          _, status = os.waitpid(self.number, 0x40000000)
          assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, status
          result = self.registers()[RAX]
          return result - (1 << 64) if result >> 63 else result
      def end(self):
          self.set(self.before)
          trace(DETACH, self.number)

  def call_here(number, *arguments):
      # As long as a register: a plain number would be 32 bits.
      result = libc.syscall(number, *[a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments])
      return -ctypes.get_errno() if result == -1 else result

  AT = -100
  def opening(path, flags, mode=0o600): return lambda call: call(257, AT, path, flags, mode)
  def tcp(call):
      end = call(41, socket.AF_INET, socket.SOCK_STREAM, 0)
      return call(49, end, struct.pack('<H', socket.AF_INET) + bytes(14), 16) if end >= 0 else 0
  def abstract(call):
      end = call(41, socket.AF_UNIX, socket.SOCK_STREAM, 0)
      return call(42, end, struct.pack('<H', socket.AF_UNIX) + name, 2 + len(name)) if end >= 0 else 0

  # A program of nobody's, and a process with a socket.
  name = b'\0mediafs-test-%d' % os.getpid()
  listener = socket.socket(socket.AF_UNIX)
  listener.bind(name)
  listener.listen(64)
  # And what a process of nobody's shares with others of its user: System V's by one number, a queue by its name.
  shared, queue = 0x6d000000 | os.getpid(), b'mediafs-test-%d' % os.getpid()
  made, tell = os.pipe()
  other = os.fork()
  def become():
      os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
      libc.prctl(4, 1, 0, 0, 0)
  if other == 0:
      become()
      found = [call_here(29, shared, 4096, 0o1600), call_here(64, shared, 1, 0o1600), call_here(68, shared, 0o1600)]
      found.append(call_here(240, queue, os.O_RDWR | os.O_CREAT, 0o600, struct.pack('8q', 0, 4, 16, 0, 0, 0, 0, 0)))
      os.write(tell, struct.pack('4q', *found))
      while True: signal.pause()
  memory, semaphores, messages, has_queues = struct.unpack('4q', os.read(made, 32))

  def attempts():
      yield 'read the system', opening(b'/etc/passwd', os.O_RDONLY)
      yield 'write the store', opening(store + b'/mediafs.log', os.O_RDWR)
      yield 'read', opening(home + b'/secret', os.O_RDONLY)
      yield 'list', opening(home, os.O_RDONLY | os.O_DIRECTORY)
      yield 'write', opening(home + b'/secret', os.O_WRONLY)
      yield 'create', opening(home + b'/new', os.O_WRONLY | os.O_CREAT)
      yield 'create in /tmp', opening(b'/tmp/mediafs-test-%d' % os.getpid(), os.O_WRONLY | os.O_CREAT)
      yield 'make a folder', lambda call: call(83, home + b'/folder', 0o700)
      yield 'make a link in the store', lambda call: call(88, home, store + b'/link')
      yield 'move into the store', lambda call: call(82, home + b'/moved', store + b'/moved')
      yield 'move out of the store', lambda call: call(82, store + b'/own', home + b'/own')
      yield 'hard link', lambda call: call(86, home + b'/secret', store + b'/hard')
      yield 'remove', lambda call: call(87, home + b'/removed')
      yield 'remove a folder', lambda call: call(84, home + b'/empty')
      yield 'environment of a process', opening(b'/proc/%d/environ' % other, os.O_RDONLY)
      yield 'open the device', opening(b'/dev/fuse', os.O_RDWR)
      if version >= 4: yield 'bind', tcp
      yield 'signal', lambda call: call(62, other, signal.SIGWINCH)
      yield 'own thread', lambda call: call(234, *[os.getpid() if call is call_here else server] * 2, 0)
      yield 'times of an open file', lambda call: call(280, call(257, AT, store + b'/own', os.O_RDWR), 0, 0, 0)
      if version >= 6: yield 'connect', abstract
      # The child of one that is not restricted ends at once.
      def starting(number, *arguments):
          def attempt(call):
              result = call(number, *arguments)
              if result == 0 and call is call_here: os._exit(0)
              return result
          return attempt
      yield 'fork', starting(57)
      yield 'vfork', lambda call: 0 if call is call_here else call(58)
      yield 'start a process', starting(56, signal.SIGCHLD, 0, 0, 0, 0)
      yield 'start a process by clone3', starting(435, struct.pack('8Q', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
      yield 'limits of a process', lambda call: call(302, other, 7, 0, bytes(16))
      yield 'own limits', lambda call: call(302, 0, 7, 0, bytes(16))
      for name, attempt in calls(): yield 'call ' + name, attempt
      yield 'execute', lambda call: call(59, b'/bin/true', 0, 0)

  def calls():
      # What reaches other processes of the user. A container may have neither queues nor keys.
      def plain(*words): return lambda call: call(*words)
      yield 'shmget', plain(29, shared, 0, 0)
      yield 'shmat', plain(30, memory, 0, 0)
      yield 'shmdt', lambda call: call(67, call(30, memory, 0, 0))
      yield 'shmctl', plain(31, memory, 2, bytes(256))
      yield 'semget', plain(64, shared, 0, 0)
      yield 'semop', plain(65, semaphores, struct.pack('HhH', 0, 1, 0), 1)
      yield 'semtimedop', plain(220, semaphores, struct.pack('HhH', 0, 1, 0), 1, 0)
      yield 'semctl', plain(66, semaphores, 0, 12)
      yield 'msgget', plain(68, shared, 0)
      yield 'msgsnd', plain(69, messages, struct.pack('q8s', 1, b'words'), 8, 0o4000)
      yield 'msgrcv', plain(70, messages, bytes(16), 8, 0, 0o4000)
      yield 'msgctl', plain(71, messages, 2, bytes(256))
      def queued(*words): return lambda call: call(words[0], call(240, queue, 0o4002, 0, 0), *words[1:])
      if has_queues >= 0:
          yield 'mq_open', plain(240, queue, 0o4002, 0, 0)
          yield 'mq_timedsend', queued(242, b'words', 5, 0, 0)
          yield 'mq_timedreceive', queued(243, bytes(16), 16, 0, 0)
          yield 'mq_notify', queued(244, 0)
          yield 'mq_getsetattr', queued(245, 0, 0)
          yield 'mq_unlink', plain(241, queue)
      key = (b'user', b'mediafs-test', b'words', 5, -2)
      if call_here(248, *key) >= 0:
          yield 'add_key', plain(248, *key)
          yield 'request_key', lambda call: call(248, *key) and call(249, b'user', b'mediafs-test', 0, 0)
          yield 'keyctl', plain(250, 0, -2, 1)
      yield 'setpriority', plain(141, 0, other, 5)
      yield 'sched_setattr', plain(314, other, struct.pack('IIQiIQQQ', 48, 0, 0, 5, 0, 0, 0, 0), 0)
      yield 'sched_setscheduler', plain(144, other, 0, bytes(4))
      yield 'sched_setparam', plain(142, other, bytes(4))
      yield 'sched_setaffinity', plain(203, other, 128, b'\xff' * 128)
      yield 'ioprio_set', plain(251, 1, other, 2 << 13 | 7)
      # Signals, which Landlock refuses from version 6 on.
      told = struct.pack('3i', signal.SIGWINCH, 0, -1) + bytes(116)
      yield 'tkill', plain(200, other, signal.SIGWINCH)
      yield 'tgkill', plain(234, other, other, signal.SIGWINCH)
      yield 'rt_sigqueueinfo', plain(129, other, signal.SIGWINCH, told)
      yield 'rt_tgsigqueueinfo', plain(297, other, other, signal.SIGWINCH, told)
      yield 'pidfd_send_signal', lambda call: call(424, call(434, other, 0), signal.SIGWINCH, 0, 0)
      def socketed(number, *words): return lambda call: call(number, call(41, socket.AF_INET, 1, 0), *words)
      yield 'fcntl_owner', socketed(72, 8, other)
      yield 'fcntl_owner_of_a_kind', socketed(72, 15, struct.pack('2i', 1, other))
      yield 'ioctl_owner', socketed(16, 0x8901, struct.pack('i', other))
      yield 'ioctl_group', socketed(16, 0x8902, struct.pack('i', other))
      # What changes a file by its path.
      secret, owner = home + b'/secret', (65534, 65534)
      yield 'truncate', plain(76, secret, 1)
      yield 'chmod', plain(90, secret, 0o644)
      yield 'fchmodat', plain(268, AT, secret, 0o644)
      yield 'chown', plain(92, secret, *owner)
      yield 'lchown', plain(94, secret, *owner)
      yield 'fchownat', plain(260, AT, secret, *owner, 0)
      yield 'utime', plain(132, secret, 0)
      yield 'utimes', plain(235, secret, 0)
      yield 'futimesat', plain(261, AT, secret, 0)
      yield 'utimensat', plain(280, AT, secret, 0, 0)
      word = (b'user.mediafs', b'1', 1, 0)
      yield 'setxattr', plain(188, secret, *word)
      yield 'lsetxattr', plain(189, secret, *word)
      yield 'removexattr', lambda call: [call(188, secret, *word), call(197, secret, word[0])][1]
      yield 'lremovexattr', lambda call: [call(188, secret, *word), call(198, secret, word[0])][1]
      # With arguments that are wrong, as nobody may make some of them.
      yield 'unshare', plain(272, 1)
      yield 'setns', plain(308, -1, 0)
      yield 'bpf', plain(321, -1, 0, 0)
      yield 'perf_event_open', plain(298, 0, 0, -1, -1, 0)
      yield 'userfaultfd', plain(323, -1)
      yield 'io_uring_setup', plain(425, 0, 0)
      yield 'io_uring_enter', plain(426, -1, 0, 0, 0, 0, 0)
      yield 'io_uring_register', plain(427, -1, 0, 0, 0)
      yield 'newer', plain(457, 0, 0, 0, 0)
      # A descriptor that neither reads nor writes, by which a file's mode and times are changed; no access, but emptied.
      yield 'open_to_neither', plain(2, secret, 3)
      yield 'openat_to_neither', plain(257, AT, secret, 3)
      yield 'openat_to_empty', plain(257, AT, secret, os.O_TRUNC)
      yield 'openat_to_neither_and_empty', plain(257, AT, secret, 3 | os.O_TRUNC)
      yield 'openat2', plain(437, AT, secret, bytes(24), 24)
      yield 'listxattr', plain(194, secret, 0, 0)
      yield 'llistxattr', plain(195, secret, 0, 0)
      yield 'getxattr', lambda call: [call(188, secret, *word), call(191, secret, word[0], 0, 0)][1]
      yield 'lgetxattr', lambda call: [call(188, secret, *word), call(192, secret, word[0], 0, 0)][1]
      yield 'inotify_add_watch', lambda call: call(254, call(294, 0), home, 0x100)
      yield 'fanotify_init', plain(300, 0x200, 0)
      own = lambda call: call(257, AT, store + b'/own', os.O_RDONLY)
      yield 'fcntl_lease', lambda call: call(72, own(call), 1024, 0)
      yield 'fcntl_notify', lambda call: call(72, call(257, AT, store, os.O_RDONLY | os.O_DIRECTORY), 1026, 1)
      yield 'ptrace', plain(101, 99999, other, 0, 0)
      yield 'process_vm_readv', plain(310, other, 0, 0, 0, 0, 0)
      yield 'process_vm_writev', plain(311, other, 0, 0, 0, 0, 0)
      yield 'pidfd_getfd', plain(438, -1, 0, 0)
      yield 'process_madvise', plain(440, -1, 0, 0, 0, 0)
      yield 'move_pages', plain(279, other, 0, 0, 0, 0, 0)
      yield 'migrate_pages', plain(256, other, 0, 0, 0)
      yield 'kcmp', plain(312, other, other, 0, 0, 0)

  def prepare():
      # What attempts that succeed took or made.
      for file in (b'new', b'own', b'folder', b'moved', b'removed', b'empty', b'secret'):
          path = home + b'/' + file
          if os.path.isdir(path): os.rmdir(path)
          elif os.path.lexists(path): os.unlink(path)
      for path in (store + b'/link', store + b'/hard', store + b'/moved', b'/tmp/mediafs-test-%d' % os.getpid()):
          if os.path.lexists(path): os.unlink(path)
      for path in (home + b'/secret', home + b'/moved', home + b'/removed', store + b'/own'):
          with open(path, 'w') as file: file.write('secret')
          os.chmod(path, 0o600)
          os.chown(path, 65534, 65534)
      os.mkdir(home + b'/empty')
      os.chown(home + b'/empty', 65534, 65534)

  def text(result): return 'ok' if result >= 0 else errno.errorcode[-result]
  def here(attempt):
      child = os.fork()
      if child == 0:
          become()
          os._exit(max(0, -attempt(call_here)))
      return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

  # Not every kernel and container has these: nobody has to be refused what is not there.
  may_lack = ['setxattr', 'lsetxattr', 'removexattr', 'lremovexattr', 'getxattr', 'lgetxattr', 'fcntl_lease',
      'fcntl_notify', 'inotify_add_watch']
  wrong = ['unshare', 'setns', 'bpf', 'perf_event_open', 'userfaultfd', 'io_uring_setup', 'io_uring_enter',
      'io_uring_register', 'newer', 'fanotify_init', 'ptrace', 'process_vm_readv', 'process_vm_writev', 'pidfd_getfd',
      'process_madvise', 'move_pages', 'migrate_pages', 'kcmp']
  alone, absent = {}, set()
  for what, attempt in attempts():
      prepare()
      alone[what], short = text(here(attempt)), what.removeprefix('call ')
      if short in may_lack and alone[what] != 'ok': absent.add(what)
      if short in wrong:
          if alone[what] in ('EPERM', 'EACCES', 'ENOSYS'): absent.add(what)
          alone[what] = 'ok'
  threads = sorted(int(task) for task in os.listdir('/proc/%d/task' % server))
  prepare()
  for number in threads:
      thread = Thread(number)
      for what, attempt in attempts():
          if what in absent: continue
          if number == threads[0]: print(what + ': ' + alone[what] + ', ' + text(attempt(thread.call)))
          elif what == 'read':
              print('read in thread %d: ' % number + alone[what] + ', ' + text(attempt(thread.call)))
      thread.end()
  prepare()
  os.unlink(store + b'/own')
  os.kill(other, signal.SIGKILL)
  call_here(31, memory, 0, 0)
  call_here(66, semaphores, 0, 0)
  call_here(71, messages, 0, 0)
  call_here(241, queue)
  """#
