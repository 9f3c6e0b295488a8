import Base
import Glibc
import TestSupport
import Testing

/// Readers that handle a signal while they wait: a call on a file is not known to be interrupted, so none is.
@Suite("Signals to those who wait")
struct SignalTests {
  @Test("A signal that is handled makes no stat fail; a killed stat goes")
  func signals() async {
    await onMount(options: ["--timeout", "600", "--continue=never"]) { stage in
      stage.origin.fault(.stallBeforeHeaders)
    } _: { scene in
      let script = """
        import os, signal, sys
        signal.signal(signal.SIGINT, lambda *_: None)
        print("ready", flush=True)
        print(os.stat(sys.argv[1]).st_size)
        """
      let handling = try BackgroundProcess(["python3", "-c", script, scene.file])
      let killed = try BackgroundProcess(["stat", scene.file])
      defer {
        handling.terminate(grace: 0)
        killed.terminate(grace: 0)
      }
      scene.expect(handling.waitForOutput("ready", timeout: 60), "python does not start")
      let origin = scene.origin
      _ = eventually(timeout: 30) { origin.log.totals.requests > 0 }
      killed.signal(SIGKILL)
      scene.expect(killed.wait(timeout: 60) != nil, "the killed stat is still there")
      for _ in 0..<5 {
        handling.signal(SIGINT)
        sleep(seconds: 0.1)
      }
      scene.expect(handling.isRunning, "stat failed: \(handling.standardErrorSoFar)")
      origin.clearFaults()
      origin.dropConnections()
      let end = handling.wait(timeout: 60)
      scene.expect(end?.status == 0, "stat ended with \(end.map { "\($0.status) \($0.errors)" } ?? "nothing")")
    }
  }

  enum Way: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case cached = "through the page cache"
    case direct = "past the page cache"
    var testDescription: String { rawValue }
  }

  /// Reads 64 KiB at 4 MiB by pread(2) itself (Python's own read is repeated after EINTR) and tells what it gave.
  private static let script = """
    import ctypes, os, signal, sys
    handled = []
    signal.signal(signal.SIGINT, lambda *_: handled.append(1))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.pread.restype = ctypes.c_ssize_t
    libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
    file = os.open(sys.argv[1], os.O_RDONLY | (os.O_DIRECT if sys.argv[2] == "direct" else 0))
    buffer = ctypes.create_string_buffer(65536)
    print("ready", flush=True)
    count = libc.pread(file, buffer, 65536, 4194304)
    error = ctypes.get_errno() if count < 0 else 0
    print("handled" if handled else "no signal", count, error, flush=True)
    sys.stdout.buffer.write(buffer.raw)
    """

  /// `options` decide whether the data comes in the end or the deadline passes.
  private func interrupt(
    _ way: Way, options: [String], _ judge: @escaping @Sendable (inout Scene, CommandResult) -> Void
  ) async {
    await onMount(size: 8 << 20, options: options + ["--continue=never"]) { stage in
      stage.origin.decide { $0.firstByte >= 4 << 20 ? [.stallBeforeHeaders] : [] }
    } _: { scene in
      scene.expect(scene.read([ByteRange(0, 4096)])?.bytes == 4096, "the beginning cannot be read")
      let origin = scene.origin
      let reader = try BackgroundProcess(["python3", "-c", Self.script, scene.file, "\(way)"])
      defer { reader.terminate(grace: 0) }
      scene.expect(reader.waitForOutput("ready", timeout: 60), "python does not start: \(reader.standardErrorSoFar)")
      let isAsked = eventually(timeout: 60) { origin.log.entries.contains { $0.request.firstByte >= 4 << 20 } }
      scene.expect(isAsked, "the reader does not wait: \(origin.log.totals)")
      for _ in 0..<5 {
        reader.signal(SIGINT)
        sleep(seconds: 0.1)
      }
      if options.contains("600") {
        scene.expect(reader.isRunning, "the read ended: \(reader.standardOutputSoFar.prefix(30))")
        origin.clearFaults()
        origin.dropConnections()
      }
      guard let end = reader.wait(timeout: FaultRun.bound) else { return scene.expect(false, "the reader hangs") }
      judge(&scene, end)
    }
  }

  @Test("A read that was interrupted gets its bytes", arguments: Way.allCases)
  func interruptedRead(way: Way) async {
    await interrupt(way, options: ["--timeout", "600"]) { scene, end in
      let head = Array("ready\nhandled 65536 0\n".utf8)
      scene.expect(end.standardOutput.starts(with: head), "\(end.output.prefix(40)) \(end.errors)")
      let bytes = Array(end.standardOutput.dropFirst(head.count))
      scene.expect(
        bytes.count == 65536
          && Pattern.check(bytes, name: FaultStage.path, generation: 1, offset: 4 << 20) == nil, "wrong bytes")
    }
  }

  @Test("A read that was interrupted gets its error, and no other", arguments: Way.allCases)
  func interruptedFailingRead(way: Way) async {
    await interrupt(way, options: ["--timeout", "5"]) { scene, end in
      // Where the page cache waits for what was read ahead, every error is EIO.
      let errors = way == .direct ? [ETIMEDOUT] : [ETIMEDOUT, EIO]
      let isRight = errors.contains { end.standardOutput.starts(with: "ready\nhandled -1 \($0)\n".utf8) }
      scene.expect(isRight, "\(end.output.prefix(40)) \(end.errors)")
    }
  }
}
