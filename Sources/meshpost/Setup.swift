// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import Glibc
import JSON
import Transport

/// The first run: finds the radio, asks for servers, writes the configuration, starts the gateway, and tries it all out.
struct SetupCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "setup", abstract: "Set the gateway of this machine up: radio, servers, configuration, service.",
    discussion: """
      Asks for what it is not told; with --unattended it asks nothing. What was configured before is kept beside the new \
      configuration. Secrets come from files, or are typed in without an echo; they are kept for root alone. \
      Ends with 0 when the gateway runs and everything answers; 69 when it runs and something does not answer yet.
      """)

  @Option(help: "Where the radio is: serial:…, ble:…, tcp:…, auto:.") var link: String?
  @Option(help: "Only the radio whose public key begins so (8 hex digits or more).") var key: String?
  @Option(help: "The file whose first line is the PIN of a Bluetooth radio.", completion: .file()) var pinFile: String?
  @Option(help: "What the gateway is called upstream.") var name: String?
  @Option(help: "A hub or broker to forward to: [NAME=]URL. May be repeated.") var upstream: [String] = []
  @Option(help: "The file with an upstream's token or password: [NAME=]FILE. May be repeated.", completion: .file())
  var tokenFile: [String] = []
  @Option(help: "The user at an MQTT broker: [NAME=]USER. May be repeated.") var user: [String] = []
  @Option(help: "The configuration that is written.", completion: .file()) var config = "/etc/meshpost/meshpostd.toml"
  @Flag(help: "Ask nothing.") var unattended = false
  @Flag(help: "Replace a configuration that somebody has edited, too. It is kept under another name.") var replace =
    false
  @Flag(help: "Only write the configuration; do not start the gateway.") var noStart = false

  func run() throws {
    var setup = Setup(config: config, isUnattended: unattended)
    try setup.checkPlace(mayReplace: replace)
    try setup.chooseRadio(link: link, key: key, pinFile: pinFile)
    setup.name = name
    for (place, text) in upstream.enumerated() {
      setup.upstreams.append(try Setup.Upstream(text, number: place + 1, tokens: tokenFile, users: user))
    }
    if !unattended { try setup.askForUpstreams() }
    try setup.writeConfiguration()
    if !noStart { try setup.start() }
  }
}

/// What is going to be configured.
struct Setup {
  struct Upstream {
    var name: String
    var url: String
    var user: String?
    /// A location, or a credential's name.
    var tokenFile: String?

    var isBroker: Bool { ["mqtt:", "mqtts:", "ws:", "wss:"].contains { url.hasPrefix($0) } }

    init(name: String, url: String, user: String? = nil, tokenFile: String? = nil) {
      (self.name, self.url, self.user, self.tokenFile) = (name, url, user, tokenFile)
    }

    /// `text`: `[NAME=]URL`; `tokens` and `users`: `[NAME=]…`, without a name for the first.
    init(_ text: String, number: Int, tokens: [String], users: [String]) throws {
      let (name, url) = Setup.split(text)
      self.url = url
      self.name = name ?? (number == 1 ? "hub" : "hub\(number)")
      if name == nil, isBroker { self.name = number == 1 ? "broker" : "broker\(number)" }
      guard url.contains("://") else { throw ValidationError("--upstream \(text): [NAME=]URL is wanted") }
      tokenFile = Setup.of(self.name, isFirst: number == 1, tokens)
      user = Setup.of(self.name, isFirst: number == 1, users)
    }

    var toml: String {
      var lines = [
        "[[upstream]]", "name = \(Setup.quoted(name))", "kind = \"\(isBroker ? "mqtt" : "hub")\"",
        "url = \(Setup.quoted(url))",
      ]
      if let user { lines.append("user = \(Setup.quoted(user))") }
      if let tokenFile { lines.append("\(isBroker ? "password_file" : "token_file") = \(Setup.quoted(tokenFile))") }
      return lines.joined(separator: "\n") + "\n\n"
    }
  }

  let config: String
  let isUnattended: Bool
  var link = "auto:"
  var key: String?
  var pinFile: String?
  var name: String?
  var upstreams: [Upstream] = []

  /// Where secrets are kept that were typed in or named by file.
  private var credentials: String { (config as NSString).deletingLastPathComponent + "/credentials" }

  init(config: String, isUnattended: Bool) {
    self.config = config
    self.isUnattended = isUnattended
  }

  // MARK: The pieces

  static let mark = "# Written by `meshpost setup`"

  /// What somebody has written by hand is not replaced unasked.
  func checkPlace(mayReplace: Bool) throws {
    let folder = (config as NSString).deletingLastPathComponent
    guard access(folder, W_OK) == 0 else {
      throw Failure.say("\(folder) cannot be written: run `sudo meshpost setup`", EX_NOPERM)
    }
    // `try?`: there is none.
    guard let old = try? String(contentsOfFile: config, encoding: .utf8), !mayReplace, !Self.isUntouched(old) else {
      return
    }
    guard !isUnattended else {
      throw Failure.say(
        "\(config) was edited: --replace writes a new one and keeps it under another name", EX_CANTCREAT)
    }
    guard Dialogue.yes("\(config) was edited. Write a new one (the old one is kept beside it)?", standard: false) else {
      throw ExitCode(EX_OK)
    }
  }

  /// As the package brought it, every key commented out, or as we wrote it.
  static func isUntouched(_ text: String) -> Bool {
    text.hasPrefix(mark)
      || !text.split(separator: "\n").contains { line in
        let line = line.trimmingCharacters(in: .whitespaces)
        return !line.isEmpty && !line.hasPrefix("#") && !line.hasPrefix("[")
      }
  }

  mutating func chooseRadio(link: String?, key: String?, pinFile: String?) throws {
    (self.key, self.pinFile) = (key, pinFile)
    if let link {
      do { _ = try LinkAddress(parsing: link) } catch { throw ValidationError("--link: \(error)") }
      self.link = link
      return try askForPIN()
    }
    let found = Probing.look(at: SerialDevices.all(), besides: Self.radioInUse())
    let radios = found.filter(\.isRadio)
    for device in found { print("\(device.device)  \(device.words)") }
    if isUnattended {
      // With a key it is found by that; else where it is now.
      if key == nil, radios.count == 1 { self.link = "serial:\(radios[0].device)" }
      if key == nil, radios.count > 1 { throw Failure.say("there are several radios: say --link or --key", EX_CONFIG) }
      return
    }
    try choose(radios)
    try askForPIN()
  }

  /// The one that the gateway of this machine has at the moment.
  private static func radioInUse() -> Probing.Found? {
    // `try?`: without arguments there is nothing wrong with them.
    let client = (try? Connection.parse(["--socket", "/run/meshpost/control.sock"])).map { ControlClient($0) }
    guard let radio = client?.quietly("/v1/status")?["radio"], let link = radio["link"]?.string,
      link.hasPrefix("serial:"),
      let identity = radio["identity"], let name = identity["name"]?.string, let key = identity["key"]?.string
    else { return nil }
    let target = URL(filePath: String(link.dropFirst(7))).resolvingSymlinksInPath()
    let device = SerialDevices.all().first { URL(filePath: $0).resolvingSymlinksInPath() == target } ?? target.path()
    return Probing.Found(device: device, result: .radio(name: name, key: key, model: "in use by the gateway"))
  }

  private mutating func choose(_ radios: [Probing.Found]) throws {
    for (number, radio) in radios.enumerated() { print("  \(number + 1)  \(radio.device)  \(radio.words)") }
    print(
      "  b  a radio over Bluetooth\n  t  a radio on the network (Wi-Fi, Ethernet)\n  a  the one that will be plugged in"
    )
    let answer = Dialogue.line("Which radio?", standard: radios.isEmpty ? "a" : "1")
    switch answer {
    case "a": link = "auto:"
    case "b": link = "ble:" + Dialogue.line("Its name or address (empty: the only one in range)", standard: "")
    case "t": link = "tcp:" + Dialogue.line("Its address, HOST or HOST:PORT", standard: "")
    default:
      guard let number = Int(answer), radios.indices.contains(number - 1) else {
        throw Failure.say("\"\(answer)\" is none of them", EX_USAGE)
      }
      link = "serial:\(radios[number - 1].device)"
    }
    do { _ = try LinkAddress(parsing: link) } catch { throw Failure.say("\(error)", EX_USAGE) }
  }

  private mutating func askForPIN() throws {
    guard link.hasPrefix("ble:"), pinFile == nil, !isUnattended else { return }
    guard let pin = Dialogue.secret("The PIN that it shows or was given (empty: none)") else { return }
    pinFile = try keep(pin, as: "radio.pin")
  }

  mutating func askForUpstreams() throws {
    while Dialogue.yes(upstreams.isEmpty ? "Forward messages to a server?" : "To another one?", standard: false) {
      let url = Dialogue.line("Its address (https://… for a hub, mqtts://… for a broker)", standard: "")
      guard url.contains("://") else {
        print("that is no address")
        continue
      }
      var upstream = try Upstream(url, number: upstreams.count + 1, tokens: [], users: [])
      upstream.name = Dialogue.line("A name for it", standard: upstream.name)
      if upstream.isBroker {
        let user = Dialogue.line("The user there (empty: none)", standard: "")
        upstream.user = user.isEmpty ? nil : user
      }
      if let secret = Dialogue.secret(upstream.isBroker ? "The password (empty: none)" : "The token (empty: none)") {
        upstream.tokenFile = try keep(secret, as: "\(upstream.name).token")
      }
      upstreams.append(upstream)
    }
  }

  // MARK: What is written

  /// A secret, for root alone; systemd hands it to the gateway. Returns its name.
  private func keep(_ secret: String, as name: String) throws -> String {
    if access(credentials, F_OK) != 0 { mkdir(credentials, 0o700) }
    let file = "\(credentials)/\(name)"
    guard Self.write(secret + "\n", to: file, mode: 0o600) else { throw Failure.file(file) }
    return name
  }

  /// Secrets that were named by file are copied to where the service finds them.
  private func adopted(_ file: String?, as name: String) throws -> String? {
    guard let file, file.contains("/"), !file.hasPrefix(credentials) else { return file }
    // `try?`: said right below.
    guard let line = (try? String(contentsOfFile: file, encoding: .utf8))?.split(separator: "\n").first, !line.isEmpty
    else {
      throw Failure.say("\(file): cannot be read, or its first line is empty", EX_NOINPUT)
    }
    return try keep(String(line), as: name)
  }

  mutating func writeConfiguration() throws {
    for place in upstreams.indices {
      upstreams[place].tokenFile = try adopted(upstreams[place].tokenFile, as: "\(upstreams[place].name).token")
    }
    pinFile = try adopted(pinFile, as: "radio.pin")
    // `try?`: there is none.
    let old = try? String(contentsOfFile: config, encoding: .utf8)
    if let old, !Self.isUntouched(old) {
      let kept = "\(config).before-\(Int(Date().timeIntervalSince1970))"
      guard rename(config, kept) == 0 else { throw Failure.file(kept) }
      print("what was there is kept as \(kept)")
    }
    guard Self.write(text, to: config, mode: 0o644) else { throw Failure.file(config) }
    print("\(config) is written")
  }

  var text: String {
    var text =
      "\(Self.mark). All keys are explained in /usr/share/meshpost/meshpostd.toml; change what you like, then\n"
    text +=
      "# `systemctl reload meshpostd` (radio, store: restart). A further setup keeps what you have changed under another name.\n\n"
    if let name { text += "[gateway]\nid = \(Self.quoted(name))\n\n" }
    text += "[radio]\nlink = \(Self.quoted(link))\n"
    if let key { text += "key = \(Self.quoted(key))\n" }
    if let pinFile { text += "pin_file = \(Self.quoted(pinFile))\n" }
    return text + "\n" + upstreams.map(\.toml).joined()
  }

  /// All of it or nothing, also when the power goes.
  static func write(_ text: String, to file: String, mode: mode_t) -> Bool {
    let part = file + ".part"
    let descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    guard descriptor >= 0 else { return false }
    let bytes = Array(text.utf8)
    let isWritten = Glibc.write(descriptor, bytes, bytes.count) == bytes.count && fsync(descriptor) == 0
    close(descriptor)
    return isWritten && rename(part, file) == 0
  }

  /// A TOML string.
  static func quoted(_ text: String) -> String {
    let escaped = text.unicodeScalars.map { scalar -> String in
      switch scalar {
      case "\"": "\\\""
      case "\\": "\\\\"
      case _ where scalar.value < 0x20 || scalar.value == 0x7F: "\\u" + String(format: "%04x", scalar.value)
      default: String(scalar)
      }
    }
    return "\"\(escaped.joined())\""
  }

  static func split(_ text: String) -> (name: String?, value: String) {
    let parts = text.split(separator: "=", maxSplits: 1).map(String.init)
    guard parts.count == 2, !parts[0].contains(":"), !parts[0].contains("/") else { return (nil, text) }
    return (parts[0], parts[1])
  }

  static func of(_ name: String, isFirst: Bool, _ texts: [String]) -> String? {
    let pairs = texts.map(split)
    return pairs.first { $0.name == name }?.value ?? (isFirst ? pairs.first { $0.name == nil }?.value : nil)
  }
}
