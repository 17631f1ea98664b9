/* Other processes. Threads signal with tgkill. */
#ifdef __NR_ptrace
    __NR_ptrace,
#endif
#ifdef __NR_process_vm_readv
    __NR_process_vm_readv,
#endif
#ifdef __NR_process_vm_writev
    __NR_process_vm_writev,
#endif
#ifdef __NR_process_madvise
    __NR_process_madvise,
#endif
#ifdef __NR_process_mrelease
    __NR_process_mrelease,
#endif
#ifdef __NR_kcmp
    __NR_kcmp,
#endif
#ifdef __NR_tkill
    __NR_tkill,
#endif
#ifdef __NR_pidfd_open
    __NR_pidfd_open,
#endif
#ifdef __NR_pidfd_getfd
    __NR_pidfd_getfd,
#endif
#ifdef __NR_pidfd_send_signal
    __NR_pidfd_send_signal,
#endif
#ifdef __NR_get_robust_list
    __NR_get_robust_list,
#endif
#ifdef __NR_move_pages
    __NR_move_pages,
#endif
#ifdef __NR_migrate_pages
    __NR_migrate_pages,
#endif
#ifdef __NR_setpriority
    __NR_setpriority,
#endif
#ifdef __NR_ioprio_set
    __NR_ioprio_set,
#endif
#ifdef __NR_sched_setparam
    __NR_sched_setparam,
#endif
#ifdef __NR_sched_setscheduler
    __NR_sched_setscheduler,
#endif
#ifdef __NR_sched_setattr
    __NR_sched_setattr,
#endif
#ifdef __NR_sched_setaffinity
    __NR_sched_setaffinity,
#endif
/* New processes. clone makes threads. */
#ifdef __NR_fork
    __NR_fork,
#endif
#ifdef __NR_vfork
    __NR_vfork,
#endif
#ifdef __NR_execveat
    __NR_execveat,
#endif
/* Namespaces, mounts, the root. */
#ifdef __NR_unshare
    __NR_unshare,
#endif
#ifdef __NR_setns
    __NR_setns,
#endif
#ifdef __NR_mount
    __NR_mount,
#endif
#ifdef __NR_umount
    __NR_umount,
#endif
#ifdef __NR_umount2
    __NR_umount2,
#endif
#ifdef __NR_mount_setattr
    __NR_mount_setattr,
#endif
#ifdef __NR_open_tree
    __NR_open_tree,
#endif
#ifdef __NR_open_tree_attr
    __NR_open_tree_attr,
#endif
#ifdef __NR_move_mount
    __NR_move_mount,
#endif
#ifdef __NR_fsopen
    __NR_fsopen,
#endif
#ifdef __NR_fsconfig
    __NR_fsconfig,
#endif
#ifdef __NR_fsmount
    __NR_fsmount,
#endif
#ifdef __NR_fspick
    __NR_fspick,
#endif
#ifdef __NR_pivot_root
    __NR_pivot_root,
#endif
#ifdef __NR_chroot
    __NR_chroot,
#endif
#ifdef __NR_statmount
    __NR_statmount,
#endif
#ifdef __NR_listmount
    __NR_listmount,
#endif
#ifdef __NR_listns
    __NR_listns,
#endif
/* Users and capabilities. */
#ifdef __NR_setuid
    __NR_setuid,
#endif
#ifdef __NR_setgid
    __NR_setgid,
#endif
#ifdef __NR_setreuid
    __NR_setreuid,
#endif
#ifdef __NR_setregid
    __NR_setregid,
#endif
#ifdef __NR_setresuid
    __NR_setresuid,
#endif
#ifdef __NR_setresgid
    __NR_setresgid,
#endif
#ifdef __NR_setfsuid
    __NR_setfsuid,
#endif
#ifdef __NR_setfsgid
    __NR_setfsgid,
#endif
#ifdef __NR_setgroups
    __NR_setgroups,
#endif
#ifdef __NR_capset
    __NR_capset,
#endif
/* Large interfaces that a VMM does not need. */
#ifdef __NR_bpf
    __NR_bpf,
#endif
#ifdef __NR_perf_event_open
    __NR_perf_event_open,
#endif
#ifdef __NR_userfaultfd
    __NR_userfaultfd,
#endif
#ifdef __NR_io_uring_setup
    __NR_io_uring_setup,
#endif
#ifdef __NR_io_uring_enter
    __NR_io_uring_enter,
#endif
#ifdef __NR_io_uring_register
    __NR_io_uring_register,
#endif
#ifdef __NR_add_key
    __NR_add_key,
#endif
#ifdef __NR_request_key
    __NR_request_key,
#endif
#ifdef __NR_keyctl
    __NR_keyctl,
#endif
#ifdef __NR_fanotify_init
    __NR_fanotify_init,
#endif
#ifdef __NR_fanotify_mark
    __NR_fanotify_mark,
#endif
#ifdef __NR_memfd_secret
    __NR_memfd_secret,
#endif
#ifdef __NR_vmsplice
    __NR_vmsplice,
#endif
#ifdef __NR_name_to_handle_at
    __NR_name_to_handle_at,
#endif
#ifdef __NR_open_by_handle_at
    __NR_open_by_handle_at,
#endif
#ifdef __NR_file_getattr
    __NR_file_getattr,
#endif
#ifdef __NR_file_setattr
    __NR_file_setattr,
#endif
#ifdef __NR_lsm_set_self_attr
    __NR_lsm_set_self_attr,
#endif
#ifdef __NR_lookup_dcookie
    __NR_lookup_dcookie,
#endif
#ifdef __NR_remap_file_pages
    __NR_remap_file_pages,
#endif
#ifdef __NR_modify_ldt
    __NR_modify_ldt,
#endif
#ifdef __NR_vm86
    __NR_vm86,
#endif
#ifdef __NR_vm86old
    __NR_vm86old,
#endif
#ifdef __NR_map_shadow_stack
    __NR_map_shadow_stack,
#endif
/* System V and POSIX message objects: without an IPC namespace, other processes share them. */
#ifdef __NR_shmget
    __NR_shmget,
#endif
#ifdef __NR_shmat
    __NR_shmat,
#endif
#ifdef __NR_shmctl
    __NR_shmctl,
#endif
#ifdef __NR_semget
    __NR_semget,
#endif
#ifdef __NR_semop
    __NR_semop,
#endif
#ifdef __NR_semtimedop
    __NR_semtimedop,
#endif
#ifdef __NR_semctl
    __NR_semctl,
#endif
#ifdef __NR_msgget
    __NR_msgget,
#endif
#ifdef __NR_msgsnd
    __NR_msgsnd,
#endif
#ifdef __NR_msgrcv
    __NR_msgrcv,
#endif
#ifdef __NR_msgctl
    __NR_msgctl,
#endif
#ifdef __NR_mq_open
    __NR_mq_open,
#endif
#ifdef __NR_mq_unlink
    __NR_mq_unlink,
#endif
/* The host. */
#ifdef __NR_init_module
    __NR_init_module,
#endif
#ifdef __NR_finit_module
    __NR_finit_module,
#endif
#ifdef __NR_delete_module
    __NR_delete_module,
#endif
#ifdef __NR_create_module
    __NR_create_module,
#endif
#ifdef __NR_query_module
    __NR_query_module,
#endif
#ifdef __NR_get_kernel_syms
    __NR_get_kernel_syms,
#endif
#ifdef __NR_kexec_load
    __NR_kexec_load,
#endif
#ifdef __NR_kexec_file_load
    __NR_kexec_file_load,
#endif
#ifdef __NR_reboot
    __NR_reboot,
#endif
#ifdef __NR_swapon
    __NR_swapon,
#endif
#ifdef __NR_swapoff
    __NR_swapoff,
#endif
#ifdef __NR_quotactl
    __NR_quotactl,
#endif
#ifdef __NR_quotactl_fd
    __NR_quotactl_fd,
#endif
#ifdef __NR_acct
    __NR_acct,
#endif
#ifdef __NR_syslog
    __NR_syslog,
#endif
#ifdef __NR_vhangup
    __NR_vhangup,
#endif
#ifdef __NR_nfsservctl
    __NR_nfsservctl,
#endif
#ifdef __NR_uselib
    __NR_uselib,
#endif
#ifdef __NR_ustat
    __NR_ustat,
#endif
#ifdef __NR_sysfs
    __NR_sysfs,
#endif
#ifdef __NR__sysctl
    __NR__sysctl,
#endif
#ifdef __NR_sethostname
    __NR_sethostname,
#endif
#ifdef __NR_setdomainname
    __NR_setdomainname,
#endif
#ifdef __NR_settimeofday
    __NR_settimeofday,
#endif
#ifdef __NR_clock_settime
    __NR_clock_settime,
#endif
#ifdef __NR_clock_adjtime
    __NR_clock_adjtime,
#endif
#ifdef __NR_adjtimex
    __NR_adjtimex,
#endif
#ifdef __NR_iopl
    __NR_iopl,
#endif
#ifdef __NR_ioperm
    __NR_ioperm,
#endif
#ifdef __NR_mknod
    __NR_mknod,
#endif
#ifdef __NR_mknodat
    __NR_mknodat,
#endif
