import TestSupport
import Testing

extension Journey {
  /// Runs a script of Python that has `Player`: mpv, driven over its own socket. `path`: what it plays.
  func play(
    _ path: String, _ script: String, _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> String {
    try succeed(playing(path, script) + arguments, sourceLocation: sourceLocation)
  }

  /// The command that runs such a script.
  func playing(_ path: String, _ script: String) -> [String] {
    ["/usr/bin/python3", "-c", playerClass + script, folder.file("mpv"), path]
  }
}

/// `Player(options)` plays the script's second argument, and talks over the socket that the first one names.
private let playerClass = """
  import json, socket, subprocess, sys, time
  name, path, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]

  class Player:
      def __init__(self, *options):
          self.end = time.monotonic() + 100
          self.mpv = subprocess.Popen(['mpv', '--no-config', '--vo=null', '--ao=null', '--really-quiet',
              '--no-terminal', *options, '--input-ipc-server=' + name, path])

      def __enter__(self):
          try:
              self.stream = self.connect().makefile('rw')
          except BaseException:
              self.__exit__()
              raise
          return self

      def __exit__(self, *error):
          self.mpv.kill()
          self.mpv.wait()

      def connect(self):
          while True:
              link = socket.socket(socket.AF_UNIX)
              try:
                  link.connect(name)
                  return link
              except OSError:
                  link.close()
                  assert self.mpv.poll() is None, 'mpv does not start'
                  self.wait('mpv does not start')

      def wait(self, what):
          assert time.monotonic() < self.end, what
          time.sleep(0.02)

      def ask(self, *command):
          self.stream.write(json.dumps({'command': command, 'request_id': 7}) + '\\n')
          self.stream.flush()
          while True:
              answer = json.loads(self.stream.readline())
              if answer.get('request_id') == 7: return answer

      def get(self, name):
          return self.ask('get_property', name).get('data')

      def begin(self):
          while not (self.get('playback-time') or 0) > 0: self.wait('it does not begin to play')

      # Whether it stalls before the film is over. At one second it jumps to another; a jump may take two.
      def stalls(self, jumps=None, to=None):
          moved = time.monotonic()
          while not self.get('eof-reached'):
              seeks = self.get('seeking')
              if not seeks: moved = time.monotonic()
              if self.get('paused-for-cache') and not seeks or time.monotonic() - moved > 2: return True
              if jumps is not None and (self.get('playback-time') or 0) >= jumps:
                  assert self.ask('seek', to, 'absolute')['error'] == 'success'
                  jumps = None
              self.wait('it does not end')
          return False

  """
