import Base
import FoundationEssentials
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// A place to mount at, and programs for `--on` that note how they were started.
final class EventPlace {
  let place: MountPlace
  let store: String
  var folder: String { place.folder }
  var mountpoint: String { place.mountpoint }
  var manifest: String { place.manifest }
  /// Where the programs note it.
  let told: String
  /// Notes it and ends.
  var script: String { folder + "/noting" }
  /// Notes its process and that of a child that leaves its group; both never end, and ignore SIGTERM if there is a
  /// second argument.
  var hanging: String { folder + "/hanging" }
  /// Ends with the status that it is given.
  var failing: String { folder + "/failing" }

  init(owner: uid_t = 0) throws {
    place = try MountPlace()
    told = place.folder + "/told"
    store = owner == 0 ? place.folder + "/store" : place.storeOfNobody
    try #require(mkdir(told, 0o755) == 0 && chown(told, owner, owner) == 0)
    try place.write(noting, to: script)
    try place.write(
      """
      #!/bin/sh
      [ -z "$2" ] || trap '' TERM
      setsid sleep 1000 >/dev/null 2>&1 &
      echo >"$1/$!"
      echo >"$1/$$"
      exec sleep 1001
      """, to: hanging)
    try place.write("#!/bin/sh\nexit $1\n", to: failing)
    for program in [script, hanging, failing] { try #require(chmod(program, 0o755) == 0) }
  }

  func list(_ text: String) throws { try place.write(text, to: manifest) }

  func mediafs(_ arguments: String...) throws -> (status: Int32, text: String) { try mediafs(arguments) }
  func mediafs(_ arguments: [String]) throws -> (status: Int32, text: String) {
    try place.wait(place.start([place.mediafs] + arguments))
  }

  func mount(_ options: String...) throws {
    let mounted = try mediafs(["mount", mountpoint, "--manifest", manifest, "--store", store] + options)
    try #require(mounted.status == 0, "\(mounted)")
  }

  func unmount() throws {
    let unmounted = try mediafs("unmount", mountpoint)
    #expect(unmounted.status == 0, "\(unmounted)")
  }

  var log: String { readText(store + "/mediafs.log") }

  /// The launcher of the mount's server.
  var launcher: Int32? {
    guard let server = place.server else { return nil }
    return Processes.children(of: server).first {
      Processes.text($0, "cmdline").utf8.starts(with: "mediafs\0launch\0".utf8)
    }
  }

  /// Whether a server that is not `old` serves the mount.
  func isServed(after old: Int32) -> Bool {
    guard let server = place.server, server != old else { return false }
    return (try? mediafs("status", mountpoint))?.text.contains("served by process \(server) ") ?? false
  }

  /// The helper, its server and its launcher.
  func processes() throws -> [Int32] {
    [try #require(place.helper), try #require(place.server), try #require(launcher)]
  }

  private var names: [String] { folderNames(told) }

  /// The processes that noted themselves.
  var started: [Int32] { names.compactMap { Int32($0) } }

  /// How a program was started.
  struct Run: Decodable {
    var words: [String]
    /// The variables `MEDIAFS_…`, by the rest of their names.
    var variables: [String: String]
    var folder: String
    /// Where its standard input leads.
    var input: String
    /// The numbers of its open descriptors.
    var descriptors: [Int]
    var home: String?
    var preload: String?
    /// What the kernel says of it.
    var status: [String: String]
  }

  var runs: [Run] {
    started.compactMap { try? JSONDecoder().decode(Run.self, from: Data(readText("\(told)/\($0)").utf8)) }
  }
}

/// The first argument is the folder for what it notes.
private let noting = #"""
  #!/usr/bin/python3
  import json, os, sys
  def is_open(number):
      try: return bool(os.fstat(number))
      except OSError: return False
  status = dict(line.rstrip('\n').split(':\t', 1) for line in open('/proc/self/status'))
  run = {
      'words': sys.argv[2:], 'folder': os.getcwd(), 'status': status, 'input': os.readlink('/proc/self/fd/0'),
      'variables': {name[8:]: value for name, value in os.environ.items() if name.startswith('MEDIAFS_')},
      'descriptors': [number for number in range(256) if is_open(number)],
      'home': os.environ.get('HOME'), 'preload': os.environ.get('LD_PRELOAD'),
  }
  path = f'{sys.argv[1]}/{os.getpid()}'
  with open(path + '.new', 'w') as file: json.dump(run, file)
  os.rename(path + '.new', path)
  print('one line', flush=True)
  print('to standard error', file=sys.stderr)
  """#

/// Starts launchers in a server's place, and sends them what no server sends.
let strangeServer = #"""
  import os, signal, socket, struct, subprocess, sys, time
  mediafs, script, told = sys.argv[1:]

  def launcher(command):
      options = os.memfd_create('options')
      pairs = [('mountpoint', '/m'), ('manifest', '/list'), ('on', 'complete ' + command)]
      text = b'mediafs\x01' + b''.join(struct.pack('<I', len(one)) + one.encode() for pair in pairs for one in pair)
      os.write(options, text)
      ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
      words = ['mediafs', 'launch', '--server-fd', str(theirs.fileno()), '--options-fd', str(options)]
      process = subprocess.Popen(words, executable=mediafs, pass_fds=[theirs.fileno(), options], stdin=subprocess.DEVNULL)
      theirs.close()
      os.close(options)
      ours.settimeout(20)
      assert ours.recv(4096)[0] == 1
      return ours, process

  def order(kind, *fields): return bytes([kind]) + b''.join(field.encode() + b'\0' for field in fields)
  def file(*fields): return order(1, *fields)

  print('ready')
  for what, packet in [
      ('too few fields', file('a', '/l/a', '1')), ('too many', file('a', '/l/a', '', '1', 'LD_PRELOAD=/x')),
      ('no number', file('a', '/l/a', '', 'x')), ('not UTF-8', b'\x01\xff\0/l/a\0\0' + b'1\0'),
      ('too long', file('a', '/l/a', 'u' * 98304, '1')), ('empty', b'\0'),
      ('a resolver of its own', order(2, 'r', '{}')), ('another resolver', order(3, 'r')),
  ]:
      ours, process = launcher(f'{script} {told}')
      ours.send(packet)
      print(what + ':', 'ended' if process.wait(20) == 0 and ours.recv(1) == b'' else 'goes on')

  # Values that look like something else are values.
  ours, process = launcher(f'{script} {told}')
  ours.send(file('LD_PRELOAD=/x\nA=b', '-rf', '$(touch x)', '1'))
  end = time.time() + 20
  while not [name for name in os.listdir(told) if name.isdigit()] and time.time() < end: time.sleep(0.01)
  print('a name of its own:', 'started')
  ours.close()
  process.wait(20)

  ours, process = launcher('sleep 1000')
  for number in range(1010): ours.send(file(f'{number}.bin', '/l', '', '1'))
  words = b''
  while b'gets no program' not in words: words = ours.recv(4096)
  print('1010 files:', 'told' if b'4 programs run, the first for 0.bin' in words else words)
  # A launcher whose words nobody reads, and that is killed with its server.
  for number in range(1010): ours.send(file(f'{number}.bin', '/l', '', '1'))
  ours.close()
  print('stopped reading:', 'ended' if process.wait(20) == 0 else 'killed')
  """#
