// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import FoundationEssentials
import Glibc
import Hub
import UntrustedText

/// `meshpost-hub people`: manages who may use the hub's pages.
struct People: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Manage who may use the hub's pages.",
    discussion: """
      Roles: view (read everything), operate (also send commands and edit documents), administer (also manage people). What is changed \
      applies at once, and signs the person out.
      """,
    subcommands: [List.self, Add.self, Role.self, Password.self, Remove.self], defaultSubcommand: List.self)

  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List people.")
    @OptionGroup var hub: HubOptions

    func run() async throws {
      let people = try await hub.store(hub.configuration(), writes: false) { try await $0.people() }
      for person in people {
        let used = person.usedAt.map { "last used \(HeldRetention.day($0))" } ?? "never used"
        let way = person.signInMethod == .oidc ? ", by OpenID Connect" : ""
        print("\(person.name)  \(person.role.rawValue)  since \(HeldRetention.day(person.createdAt)), \(used)\(way)")
      }
      if people.isEmpty { print("nobody: add someone with `meshpost-hub people add NAME --role administer`") }
    }
  }

  struct Add: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Add a person.",
      discussion: "Asks for the password, or reads it from the first line of standard input.")
    @OptionGroup var hub: HubOptions
    @Option(help: "A file with the password in its first line.") var passwordFile: String?
    @Argument(help: "The name to sign in with.") var name: String
    @Option(help: "\(HubPerson.Role.names).") var role: HubPerson.Role

    func validate() throws { try People.check(name) }

    func run() async throws {
      try await People.change(hub, name, role: role, password: try People.ask(passwordFile), mustBeNew: true)
      print("added \(name), who may \(role.rawValue)")
    }
  }

  struct Role: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Change what a person may do.")
    @OptionGroup var hub: HubOptions
    @Argument(help: "The person.") var name: String
    @Argument(help: "\(HubPerson.Role.names).") var role: HubPerson.Role

    func run() async throws {
      try await People.change(hub, name, role: role, password: nil)
      print("\(name) may \(role.rawValue)")
    }
  }

  struct Password: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Change a person's password.",
      discussion: "Asks for it, or reads it from the first line of standard input.")
    @OptionGroup var hub: HubOptions
    @Option(help: "A file with the password in its first line.") var passwordFile: String?
    @Argument(help: "The person.") var name: String

    func run() async throws {
      try await People.change(hub, name, role: nil, password: try People.ask(passwordFile))
      print("changed the password of \(name)")
    }
  }

  struct Remove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Remove a person.")
    @OptionGroup var hub: HubOptions
    @Argument(help: "The person.") var name: String

    func run() async throws {
      let name = name
      let refusal = try await hub.store(hub.configuration(), writes: true) { store in
        let refusal = try await store.removePerson(name)
        if refusal == nil { try await People.note(store, name, ["removed": "true"]) }
        return refusal
      }
      if let refusal { throw People.ended(refusal) }
      print("removed \(name)")
    }
  }

  // MARK: Shared

  static func check(_ name: String) throws {
    guard Name.isAllowedNew(name) else { throw ValidationError("a name must be \(Name.allowedNew)") }
  }

  static func change(
    _ hub: HubOptions, _ name: String, role: HubPerson.Role?, password: String?, mustBeNew: Bool = false
  ) async throws {
    var hash: String?
    if let password {
      hash = HubPerson.hash(password)
      guard hash != nil else { throw failure("not enough memory") }
    }
    let words = hash
    let refusal = try await hub.store(hub.configuration(), writes: true) { store in
      let refusal = try await store.setPerson(name, role: role, hash: words, mustBeNew: mustBeNew, at: HubClock.now)
      if refusal == nil {
        let detail = [
          "added": mustBeNew ? "true" : nil, "role": role?.rawValue,
          "password": words == nil || mustBeNew ? nil : "changed",
        ]
        try await note(store, name, detail.compactMapValues { $0 })
      }
      return refusal
    }
    if let refusal { throw People.ended(refusal) }
  }

  private static func ended(_ refusal: HubStore.PeopleRefusal) -> ExitCode {
    failure(refusal.description, refusal.isUnknown ? 67 : 65)  // EX_NOUSER, EX_DATAERR
  }

  /// Adds a record to the audit, by this machine's user.
  static func note(_ store: HubStore, _ name: String, _ detail: [String: String]) async throws {
    let user = getpwuid(getuid()).map { String(cString: $0.pointee.pw_name) } ?? "\(getuid())"
    try await store.note(AuditRecord(person: name, by: user, detail, at: HubClock.now))
  }

  static func ask(_ file: String?) throws -> String {
    let password = try file.map(firstLine) ?? HiddenPrompt.line("password: ") ?? ""
    guard HubPerson.isPassword(password) else { throw failure(HubPerson.passwordRule) }
    guard file == nil, isatty(0) != 0 else { return password }
    guard try HiddenPrompt.line("repeat the password: ") == password else { throw failure("the passwords differ") }
    return password
  }

  private static func firstLine(_ file: String) throws -> String {
    let text: [UInt8]
    do throws(ReadFailure) {
      text = try ReadFailure.contents(of: file)
    } catch {
      throw failure("--password-file \(file): \(error.reason)", 66)  // EX_NOINPUT
    }
    if let broken = BrokenText(text, from: "--password-file \(file)") { throw failure("\(broken)") }
    return String(decoding: text, as: UTF8.self).split(whereSeparator: \.isNewline).first.map(String.init) ?? ""
  }
}

extension HubPerson.Role: ExpressibleByArgument {}
