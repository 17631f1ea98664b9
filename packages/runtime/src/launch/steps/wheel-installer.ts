/**
 * Installs wheels in the guest: a Python program, given to `python3 -c` with the directory of the wheels.
 *
 * pip itself would have to be in the image, or be compiled in the guest at each use: that took 70 s under emulation.
 * The host's pip has chosen the wheels. A version that was installed before by this program or by
 * pip is removed; files of Debian's packages stay, and those in /usr/local are found first. pip in the guest can
 * remove and upgrade what this installs.
 */
export const wheelInstaller = `
import base64, compileall, configparser, csv, email, hashlib, importlib.metadata, io, os, re, shutil, stat, sys, sysconfig, zipfile

paths = sysconfig.get_paths()
places = {"purelib": paths["purelib"], "platlib": paths["platlib"], "scripts": paths["scripts"], "data": paths["data"]}
site = paths["purelib"]

def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def remove_old(name):
    for dist in importlib.metadata.distributions(path=[site]):
        if canonical(dist.metadata["Name"] or "") != name:
            continue
        folders = set()
        for path in [os.path.normpath(str(dist.locate_file(file))) for file in dist.files or []]:
            folder = os.path.dirname(path)
            while folder.startswith(site + "/"):
                folders.add(folder)
                folder = os.path.dirname(folder)
            if os.path.lexists(path) and not os.path.isdir(path):
                os.unlink(path)
        for folder in sorted(folders, key=len, reverse=True):
            shutil.rmtree(os.path.join(folder, "__pycache__"), ignore_errors=True)
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)

def write(path, data, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)

def entry_point(target):
    module, _, attribute = target.split("[")[0].strip().partition(":")
    if not re.fullmatch(r"[\\w.]+", module) or not re.fullmatch(r"[\\w.]+", attribute):
        sys.exit("not an entry point: " + target)
    first = attribute.split(".")[0]
    return "#!%s\\nimport sys\\nfrom %s import %s\\n\\nsys.exit(%s())\\n" % (sys.executable, module, first, attribute)

def install(path):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = next(name.split("/")[0] for name in names if re.fullmatch(r"[^/]+\\.dist-info/WHEEL", name))
        metadata = email.message_from_bytes(wheel.read(info + "/METADATA"))
        tags = email.message_from_bytes(wheel.read(info + "/WHEEL"))
        root = places["purelib" if tags.get("Root-Is-Purelib", "").strip().lower() == "true" else "platlib"]
        remove_old(canonical(metadata["Name"]))
        data_dir = info[: -len(".dist-info")] + ".data/"
        made = []
        def put(target, data, mode=0o644):
            write(target, data, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            made.append((os.path.relpath(target, root), "sha256=" + digest, len(data)))
        for item in wheel.infolist():
            if item.is_dir() or item.filename == info + "/RECORD":
                continue
            data = wheel.read(item)
            mode = 0o755 if (item.external_attr >> 16) & stat.S_IXUSR else 0o644
            if not item.filename.startswith(data_dir):
                put(os.path.join(root, item.filename), data, mode)
                continue
            kind, _, rest = item.filename[len(data_dir):].partition("/")
            if kind == "scripts":
                if data.startswith(b"#!python"):
                    data = b"#!" + sys.executable.encode() + data[data.find(b"\\n"):]
                mode = 0o755
            if kind == "headers":
                kind, rest = "data", "include/" + metadata["Name"] + "/" + rest
            put(os.path.join(places[kind], rest), data, mode)
        parser = configparser.ConfigParser(delimiters=["="], interpolation=None)
        parser.optionxform = str
        if info + "/entry_points.txt" in names:
            parser.read_string(wheel.read(info + "/entry_points.txt").decode())
        for section in ("console_scripts", "gui_scripts"):
            for name, target in parser.items(section) if parser.has_section(section) else []:
                put(os.path.join(places["scripts"], name), entry_point(target).encode(), 0o755)
        put(os.path.join(root, info, "INSTALLER"), b"forkd\\n")
        record = os.path.join(root, info, "RECORD")
        text = io.StringIO()
        csv.writer(text, lineterminator="\\n").writerows(made + [(os.path.relpath(record, root), "", "")])
        write(record, text.getvalue().encode())
        for name in {made_path.split("/")[0] for made_path, _, _ in made}:
            target = os.path.join(root, name)
            if os.path.isdir(target):
                compileall.compile_dir(target, quiet=2)
            elif target.endswith(".py"):
                compileall.compile_file(target, quiet=2)
        print("installed", metadata["Name"], metadata["Version"], flush=True)

directory = sys.argv[1]
for name in sorted(os.listdir(directory)):
    if name.endswith(".whl"):
        install(os.path.join(directory, name))
`;
