import Base
import Glibc
import TestSupport

// The scriptable origin as a program, for benchmarks and the demo. The first line on standard output is its URL.

let usage = """
  usage: test-origin [--port N] [--address A] [--COMMAND key=value,key=value…]…
  Serves until SIGINT or SIGTERM. GET /.origin/log and /.origin/totals give JSON; POST /.origin/COMMAND?key=value&… does:
  \(OriginCommand.help)
  """

/// Ends with the usage: 2, as every wrong use.
func fail(_ message: String) -> Never {
  var text = "test-origin: \(message)\n\(usage)\n"
  text.withUTF8 { bytes in _ = write(STDERR_FILENO, bytes.baseAddress, bytes.count) }
  exit(2)
}

var settings = OriginSettings()
var commands: [(name: String, values: [String: String])] = []
var arguments = CommandLine.arguments.dropFirst()
while let flag = arguments.popFirst() {
  if flag == "--help" {
    print(usage)
    exit(0)
  }
  if flag == "--hang" {
    // For the test of the watchdog, which ends the process it runs in.
    let child = try BackgroundProcess(["sleep", "1004"])
    withWatchdog(0.5, "a hang on purpose") { sleep(seconds: 1000) }
    child.terminate()
  }
  guard flag.hasPrefix("--") else { fail("unexpected \(flag)") }
  let name = String(flag.dropFirst(2))
  // A command without values may stand before the next flag.
  let value = arguments.first?.hasPrefix("--") == false ? arguments.popFirst() ?? "" : ""
  switch name {
  case "port":
    guard let port = UInt16(value) else { fail("--port takes a number up to 65535") }
    settings.port = port
  case "address": settings.address = value
  default:
    var values: [String: String] = [:]
    for pair in value.split(separator: ",") {
      let equals = pair.firstIndex(of: "=") ?? pair.endIndex
      values[String(pair[..<equals])] = String(pair[equals...].dropFirst())
    }
    commands.append((name, values))
  }
}

// Blocked before the first thread starts, so that sigwait below is the one to take them.
var ending = sigset_t()
sigemptyset(&ending)
sigaddset(&ending, SIGINT)
sigaddset(&ending, SIGTERM)
pthread_sigmask(SIG_BLOCK, &ending, nil)

do {
  // One that comes back at its address gets requests at once: it answers none before it knows what it has.
  let origin = try Origin(settings, isUp: false)
  var isUp = true
  for command in commands {
    if command.name == "down" { isUp = false }
    do { try OriginCommand.apply(command.name, command.values, to: origin) } catch {
      fail("--\(command.name): \(error)")
    }
  }
  try origin.setUp(isUp)
  print(origin.url())
  fflush(nil)
  var signal: Int32 = 0
  sigwait(&ending, &signal)
  origin.stop()
} catch {
  fail("cannot listen at \(settings.address):\(settings.port): \(error)")
}
