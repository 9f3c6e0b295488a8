import Glibc

// A program that is started with 0, 1 or 2 closed would have them taken by the next file it opens.
while true {
  let descriptor = open("/dev/null", O_RDWR)
  if descriptor < 0 { break }
  if descriptor > STDERR_FILENO {
    close(descriptor)
    break
  }
}
exit(Program.run(CommandLine.arguments))
